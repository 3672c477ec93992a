"""Reading prompts and comparing answers, for the solvers."""

from __future__ import annotations

import re
from fractions import Fraction

_LONGEST = 1000
"""Length in characters of the longest number that is read; Python refuses longer integers."""
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:/\d+)?", re.ASCII)


class UnknownPrompt(ValueError):
    """Raised for a prompt whose text a solver does not know."""


def find(pattern: str, prompt: str) -> re.Match[str]:
    """Return the first match of a pattern, in which ``.`` also matches a line break.

    Raises:
        Unreadable: There is no match.
    """
    match = re.search(pattern, prompt, re.DOTALL)
    if match is None:
        raise UnknownPrompt(f"no text like {pattern!r} in {prompt[:200]!r}")
    return match


def integers(text: str) -> list[int]:
    """Return all integers in a text."""
    return [int(number) for number in re.findall(r"-?\d+", text)]


def grid(text: str) -> list[list[int]]:
    """Return a matrix of integers written in lines; lines without digits are left out."""
    return [row for row in map(integers, text.splitlines()) if row]


def number(text: str) -> Fraction | None:
    """Return the value of an integer, decimal, or fraction; None for other text."""
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return None
    above, _, below = text.partition("/")
    return Fraction(above) / int(below or 1) if int(below or 1) and (not below or "." not in above) else None


def same(answer: str, right: str) -> bool:
    """Return whether two answers are the same number, or the same text up to white space."""
    answer, right = " ".join(answer.split()), " ".join(right.split())
    if answer == right:
        return True
    value = number(answer)
    return value is not None and value == number(right)
