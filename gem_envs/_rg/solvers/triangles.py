"""Solver of questions about a triangle with given vertices."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from gem_envs._rg.solvers.reading import find

_PLACES = 3
Point = tuple[int, int]


def solve_advanced_geometry(prompt: str) -> str | None:
    """Round to three decimals, as the prompt asks; None if a value is halfway between two of them."""
    values, unit = _values(prompt)
    if any(map(_halfway, values)):
        return None
    texts = [f"{float(round(value, _PLACES)) + 0.0:.{_PLACES}f}" for value in values]
    return f"({', '.join(texts)})" if len(texts) == 2 else texts[0] + unit


def judge_advanced_geometry(prompt: str, answer: str) -> bool | None:
    """Compare with the exact values; None if one is halfway between two numbers of three decimals.

    More decimals than the prompt asks for must be right as well.
    """
    values, unit = _values(prompt)
    if any(map(_halfway, values)):
        return None
    texts = re.split(r"\s*,\s*", answer.strip().removesuffix(unit).strip("() "))
    if len(texts) != len(values):
        return False
    for text, value in zip(texts, values, strict=True):
        whole, _, decimals = text.partition(".")
        if not re.fullmatch(r"[+-]?[0-9]+", whole) or not re.fullmatch(r"[0-9]*", decimals):
            return False
        places = min(max(len(decimals), _PLACES), 9)
        if abs(Fraction(text) - value) > Fraction(1, 2 * 10**places) + Fraction(1, 10**11):
            return False
    return True


def _halfway(value: Fraction) -> bool:
    return bool(value * 10**_PLACES % 1 == Fraction(1, 2))


def _values(prompt: str) -> tuple[list[Fraction], str]:
    """Return the numbers asked for, and their unit."""
    points = [find(rf"{name}=\((-?\d+), (-?\d+)\)", prompt).groups() for name in "ABC"]
    a, b, c = ((int(x), int(y)) for x, y in points)
    if "orthocenter" in prompt:
        return _orthocenter(a, b, c), ""
    sides = [math.dist(b, c), math.dist(c, a), math.dist(a, b)]
    twice_area = abs(_cross(_minus(b, a), _minus(c, a)))
    if "incircle" in prompt:
        return [Fraction(twice_area / sum(sides))], ""
    find(r"angle ABC|angle at B", prompt)
    u, v = _minus(a, b), _minus(c, b)
    return [Fraction(math.degrees(math.atan2(twice_area, u[0] * v[0] + u[1] * v[1])))], "°"


def _minus(p: Point, q: Point) -> Point:
    return p[0] - q[0], p[1] - q[1]


def _cross(p: Point, q: Point) -> int:
    return p[0] * q[1] - p[1] * q[0]


def _orthocenter(a: Point, b: Point, c: Point) -> list[Fraction]:
    """Return the point whose lines to A and B are perpendicular to BC and CA, by Cramer's rule."""
    u, v = _minus(c, b), _minus(a, c)
    p, q = u[0] * a[0] + u[1] * a[1], v[0] * b[0] + v[1] * b[1]
    area = _cross(u, v)
    return [Fraction(p * v[1] - q * u[1], area), Fraction(u[0] * q - v[0] * p, area)]
