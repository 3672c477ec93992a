"""Units of measurement that occur in answers."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

_SIZES: dict[str, dict[str, int | str]] = {
    "length": {
        "mm": "1/1000", "cm": "1/100", "m": 1, "km": 1000, "inch": "254/10000", "ft": "3048/10000",
        "yd": "9144/10000", "mile": "1609344/1000",
    },
    "time": {"ms": "1/1000", "s": 1, "min": 60, "h": 3600, "day": 86400, "week": 604800},
    "mass": {"mg": "1/1000", "g": 1, "kg": 1000},
    "volume": {"ml": "1/1000", "l": 1},
    "money": {"cent": "1/100", "dollar": 1},
}  # fmt: skip
_NAMES = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre",
    "km": "kilometer kilometre", "inch": "in inches", "ft": "foot feet", "yd": "yard", "mile": "mi",
    "ms": "millisecond", "s": "sec second", "min": "minute", "h": "hr hour", "mg": "milligram",
    "g": "gram", "kg": "kilogram kgs", "ml": "milliliter millilitre mL", "l": "liter litre L",
}  # fmt: skip
_COMPOUNDS = {"mph": "mile per h", "kmh": "km per h", "kph": "km per h", "kmph": "km per h"}
PREFIXES = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
"""Power of the unit that follows each of these words."""
_NO_UNIT = frozenset(("unit", "units"))
_WORD = re.compile(r"([A-Za-z]+)\.?\^?(-?[0-9])?")


class Measure(NamedTuple):
    """A unit in terms of the base unit of each dimension."""

    dimensions: tuple[tuple[str, int], ...]
    """Powers of the dimensions; empty for ``square units``, whose dimension is unknown."""
    size: Fraction


def _unit_table() -> dict[str, tuple[str, Fraction]]:
    table = {}
    for dimension, units in _SIZES.items():
        for unit, factor in units.items():
            for name in (unit, *_NAMES.get(unit, "").split()):
                table[name] = table[f"{name}s"] = (dimension, Fraction(factor))
    return table


UNITS = _unit_table()
"""Dimension and size of the convertible units."""


def measure(unit: str) -> Measure | None:
    """Return the meaning of a unit such as ``square inches`` or ``km per h``; None if a word is unknown."""
    powers: Counter[str] = Counter()
    size, sign, power = Fraction(1), 1, 1
    for word in " ".join(_COMPOUNDS.get(word, word) for word in unit.split()).split():
        if word == "per":
            sign = -1
            continue
        if prefix := PREFIXES.get(word.removesuffix(".")):
            power = prefix
            continue
        parts = _WORD.fullmatch(word)
        if parts is None:
            return None
        if parts[1] in _NO_UNIT:
            continue
        if parts[1] not in UNITS:
            return None
        dimension, factor = UNITS[parts[1]]
        power = sign * int(parts[2] or power)
        powers[dimension] += power
        size *= factor**power
        power = 1
    return Measure(tuple(sorted((name, power) for name, power in powers.items() if power)), size)
