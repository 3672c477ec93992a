"""Solvers of tasks with integers and fractions: divisors, multiples, and the odds of dice."""

from __future__ import annotations

import math
import re
from collections import Counter
from fractions import Fraction

from gem_envs._rg.solvers.reading import find, integers


def solve_gcd(prompt: str) -> str | None:
    """Return the greatest common divisor by Euclid's algorithm."""
    divisor = 0
    for number in integers(find(r"of these numbers: ([\d, ]+)\.", prompt)[1]):
        while number:
            divisor, number = number, divisor % number
    return str(divisor)


def solve_lcm(prompt: str) -> str | None:
    """Count up in steps of the largest number."""
    numbers = integers(find(r"of these numbers: ([\d, ]+)", prompt)[1])
    multiple = max(numbers)
    while any(multiple % number for number in numbers):
        multiple += max(numbers)
    return str(multiple)


_FRACTION = re.compile(r"\$?(?:\\d?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+)|(\d+))\$?", re.ASCII)


def judge_fraction_simplification(prompt: str, answer: str) -> bool | None:
    """Compare the values, and check that no divisor is left; any way to write a fraction counts."""
    given = _FRACTION.fullmatch(find(r"the fraction (\S+) to", prompt)[1])
    reduced = _FRACTION.fullmatch(answer.strip())
    if given is None or reduced is None:
        return None if given is None else False
    above, below = _parts(reduced)
    return math.gcd(above, below) == 1 and Fraction(above, below) == Fraction(*_parts(given))


def _parts(fraction: re.Match[str]) -> tuple[int, int]:
    """Return the numerator and the denominator."""
    above, below = [int(number) for number in (*fraction.groups(), "1") if number][:2]
    return above, below


def judge_dice(prompt: str, answer: str) -> bool | None:
    """Count the rolls by their sum, and check that the fraction is reduced."""
    target = int(find(r"rolling (\d+) or higher", prompt)[1])
    sums = Counter({0: 1})
    for number, sides in re.findall(r"(\d+)d(\d+)", find(r"these dice: (.*?)\. ", prompt)[1]):
        for _ in range(int(number)):
            rolled: Counter[int] = Counter()
            for total, ways in sums.items():
                for side in range(1, int(sides) + 1):
                    rolled[total + side] += ways
            sums = rolled
    odds = Fraction(sum(ways for total, ways in sums.items() if total >= target), sum(sums.values()))
    given = re.fullmatch(r"([0-9]+)(?:/([0-9]+))?", answer.strip())
    return given is not None and (int(given[1]), int(given[2] or 1)) == odds.as_integer_ratio()
