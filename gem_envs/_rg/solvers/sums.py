"""Solvers of tasks in arithmetic: chains of operations, complex numbers, coins, and the numbers game."""

from __future__ import annotations

import re
from fractions import Fraction
from math import comb

from gem_envs._rg.solvers.equations import polynomial
from gem_envs._rg.solvers.reading import find, integers


def solve_basic_arithmetic(prompt: str) -> str | None:
    """Calculate exactly; None if the result is not an integer, because the prompt names no other form."""
    return _calculated(find(r"^(?:Calculate|What is|Solve|Compute|Evaluate:) (.*)[.?]$", prompt.strip())[1])


def solve_chain_sum(prompt: str) -> str | None:
    """Add and subtract."""
    return _calculated(find(r"problem: (.*) =$", prompt.strip())[1])


def _calculated(expression: str) -> str | None:
    """Return an integer; None if there is none."""
    try:
        value = polynomial(expression).get((), Fraction(0))
    except ZeroDivisionError:
        return None
    return str(value) if value.denominator == 1 else None


def judge_countdown(prompt: str, answer: str) -> bool:
    """Calculate exactly, and compare the numbers in the expression with those given: each is used once."""
    given = find(r"all (?:of these numbers: |the numbers )(\d+(?:, \d+)*)", prompt)[1]
    target = find(r"(?:that equals|Find a way to make|Calculate) (\d+)", prompt)[1]
    if len(answer) > 500 or not re.fullmatch(r"[-+*/()\d\s]+", answer):
        return False
    if sorted(map(int, re.findall(r"\d+", answer))) != sorted(integers(given)):
        return False
    if re.search(r"\*\s*\*|/\s*/", answer):
        return False
    return polynomial(answer).get((), Fraction(0)) == int(target)


_REAL = r"[+-]?\d+(?:\.\d+)?"
_COMPLEX = re.compile(
    rf"(?P<real>{_REAL})|(?:(?P<first>{_REAL})(?=[+-]))?(?P<imaginary>[+-]?(?:\d+(?:\.\d+)?)?)i",
    re.ASCII,
)
Complex = tuple[Fraction, Fraction]
"""Real and imaginary part."""


def judge_complex_arithmetic(prompt: str, answer: str) -> bool:
    """Calculate with exact parts."""
    left, sign, right = find(r"numbers: \((.*)\) ([-+×÷]) \((.*)\)", prompt).groups()  # noqa: RUF001
    (a, b), (c, d) = _complex(left), _complex(right)
    if sign in "+-":
        value = (a + c, b + d) if sign == "+" else (a - c, b - d)
    else:
        if sign == "÷":
            size = c * c + d * d
            c, d = c / size, -d / size
        value = (a * c - b * d, a * d + b * c)
    return _complex(answer) == value


def _complex(text: str) -> Complex:
    match = _COMPLEX.fullmatch("".join(text.split()).removeprefix("(").removesuffix(")"))
    if match is None:
        raise ValueError(f"not a complex number: {text!r}")
    if match["real"]:
        return Fraction(match["real"]), Fraction(0)
    part = match["imaginary"]
    return Fraction(match["first"] or 0), Fraction(f"{part}1" if part in ("", "+", "-") else part)


def judge_coin_flip(prompt: str, answer: str) -> bool:
    """Compare with the exact probability.

    The prompt asks for no number of decimals. A number other than 0 and 1 may differ by 0.0001, and by a
    hundredth of the probability.
    """
    kind, heads, flips = find(
        r"getting (exactly|at least) (\d+) heads in (\d+) fair coin flips", prompt
    ).groups()
    most = int(heads) if kind == "exactly" else int(flips)
    ways = sum(comb(int(flips), count) for count in range(int(heads), most + 1))
    right = Fraction(ways, 2 ** int(flips))
    if len(answer) > 100 or not answer.isascii():
        return False
    given = Fraction(answer.strip())
    error = abs(given - right)
    return error == 0 or (error * 10_000 <= 1 and error * 100 <= right and 0 < given < 1)
