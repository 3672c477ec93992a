"""Several required answers in one response, and numbers with a tolerance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

_SCIENTIFIC = re.compile(r"(.+?)(?:\\times|\\cdot|\*|\u00d7)10\^\{?(-?\d+)\}?")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(-?[\d.]+)\}\{(-?[\d.]+)\}|(-?)([\d.]+)/([\d.]+)")
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_LINK = re.compile(r"\s*(?:\\text\{\s*(?:and|or)\s*\}|\band\b|\bor\b)\s*")


def listed(text: str) -> list[str]:
    """Return the answers in a list such as ``1, 2 and 3``, without dollar signs and braces around it.

    Commas inside brackets do not separate.
    """
    text = text.replace("$", " ").strip()
    if text.startswith("\\{") and text.endswith("\\}"):
        text = text[2:-2]
    items, depth, start = [], 0, 0
    text = _LINK.sub(" , ", text)
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter in ",;" and depth == 0:
            items.append(text[start:place])
            start = place + 1
    return [item.strip() for item in [*items, text[start:]] if item.strip()]


def match_all(given: Sequence[str], required: Sequence[str], same: Callable[[str, str], bool]) -> bool:
    """Return whether each required answer is given, in any order, and nothing else."""
    left = list(given)
    if len(left) != len(required):
        return False
    for reference in required:
        place = next((n for n, answer in enumerate(left) if same(answer, reference)), None)
        if place is None:
            return False
        del left[place]
    return True


def is_close(answer: str, reference: str, tolerance: float) -> bool:
    """Return whether both texts are numbers that differ by at most `tolerance`."""
    a, b = number_of(answer), number_of(reference)
    return a is not None and b is not None and abs(a - b) <= tolerance * (1 + 1e-9)


def number_of(value: Any) -> float | None:
    """Return the number that a value or text is; None if it is anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    text = re.sub(r"\s|\\[,;! ]|\$", "", value)
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    scale = 1.0
    if power := _SCIENTIFIC.fullmatch(text):
        text, scale = power[1], 10.0 ** max(-300, min(300, int(power[2])))
    try:
        if part := _FRACTION.fullmatch(text):
            sign, over, under = (part[1], part[2], part[3]) if part[2] else (part[4], part[5], part[6])
            number = float(over) / float(under) * (-1 if sign else 1)
        else:
            number = float(text)
    except (ValueError, ZeroDivisionError):
        return None
    return number * scale if math.isfinite(number) else None
