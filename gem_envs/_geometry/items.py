"""Code that all kinds of figures share: the item that they return, and numbers as answers."""

from __future__ import annotations

import cmath
import math
from fractions import Fraction
from random import Random
from typing import NamedTuple

from gem_envs._geometry.figures import Shape

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Names of points; I and O look like numbers."""


class Item(NamedTuple):
    """A question about a figure."""

    values: tuple[int | str, ...]
    """Identifies this question among others of its kind, in any orientation of the figure."""
    problem: str
    answer: str
    shapes: list[Shape]


def direction(degrees: float) -> complex:
    """Return the unit vector at an angle from the first axis."""
    return cmath.rect(1.0, math.radians(degrees))


def two_numbers(random: Random, low: int, high: int, ratio: float = 3.0) -> tuple[int, int]:
    """Return two different numbers, neither more than `ratio` times the other, in any order."""
    small = random.randint(low, high - 1)
    large = random.randint(small + 1, max(small + 1, min(high, int(ratio * small))))
    return (small, large) if random.random() < 0.5 else (large, small)


def root(square: int) -> str:
    r"""Return the square root of a positive whole number: ``5``, ``\sqrt{7}``, or ``3\sqrt{2}``."""
    factor = math.isqrt(square)
    while square % (factor * factor):
        factor -= 1
    rest = square // (factor * factor)
    if rest == 1:
        return str(factor)
    return f"\\sqrt{{{rest}}}" if factor == 1 else f"{factor}\\sqrt{{{rest}}}"


def decimal(value: Fraction) -> str:
    """Return a whole or half number in digits."""
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator / value.denominator:.1f}"
