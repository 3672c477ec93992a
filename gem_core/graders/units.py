"""Units of measurement that occur in answers."""

from __future__ import annotations

from fractions import Fraction


def _unit_table() -> dict[str, tuple[str, Fraction]]:
    sizes: dict[str, dict[str, int | str]] = {
        "length": {
            "mm": "1/1000",
            "cm": "1/100",
            "m": 1,
            "km": 1000,
            "inch": "254/10000",
            "ft": "3048/10000",
        },
        "time": {"s": 1, "min": 60, "h": 3600, "day": 86400, "week": 604800},
        "mass": {"mg": "1/1000", "g": 1, "kg": 1000},
        "volume": {"ml": "1/1000", "l": 1},
        "money": {"cent": "1/100", "dollar": 1},
    }
    names = {
        "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre",
        "km": "kilometer kilometre", "inch": "in inches", "ft": "foot feet", "s": "sec second",
        "min": "minute",
        "h": "hr hour", "mg": "milligram", "g": "gram", "kg": "kilogram kgs",
        "ml": "milliliter millilitre mL", "l": "liter litre L", "cent": "",
        "day": "", "week": "", "dollar": "",
    }  # fmt: skip
    table = {}
    for dimension, units in sizes.items():
        for unit, factor in units.items():
            for name in (unit, *names[unit].split()):
                table[name] = table[f"{name}s"] = (dimension, Fraction(factor))
    return table


UNITS = _unit_table()
"""Dimension and size of the convertible units."""
