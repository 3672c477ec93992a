"""Solvers of arithmetic with decimals, calculated exactly."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from gem_envs._rg.solvers.reading import find


def solve_decimal_chain_sum(prompt: str) -> str | None:
    """Add and subtract from the left."""
    words = find(r"(-?[\d.]+(?: [+-] -?[\d.]+)*) =", prompt)[1].split()
    total = Fraction(words[0])
    for sign, word in zip(words[1::2], words[2::2], strict=True):
        total += Fraction(word) if sign == "+" else -Fraction(word)
    return _decimal(total)


def judge_decimal_arithmetic(prompt: str, answer: str) -> bool | None:
    """Compare with the value rounded once, or after every operation, with halves rounded up or to even.

    None if the expression divides by zero.
    """
    digits = int(find(r"maximum of (\d+) significant digits", prompt)[1])
    tree = ast.parse(find(r"value\.\n(.*) = \?", prompt)[1], mode="eval").body
    if not re.fullmatch(r"\s*[+-]?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]{1,3})?\s*", answer, re.IGNORECASE):
        return False
    up, even = partial(_rounded, digits=digits), partial(_rounded, digits=digits, even=True)
    try:
        right = {up(_value(tree, Fraction)), _value(tree, up), _value(tree, even)}
    except ZeroDivisionError:
        return None
    return Fraction(answer) in right


def _value(node: ast.expr, rounded: Callable[[Fraction], Fraction]) -> Fraction:
    """Evaluate an expression, with a function that rounds the result of each operation."""
    if isinstance(node, ast.Constant):
        return Fraction(str(node.value))
    if not isinstance(node, ast.BinOp):
        raise TypeError(f"not arithmetic: {ast.unparse(node)}")
    left, right = _value(node.left, rounded), _value(node.right, rounded)
    if isinstance(node.op, ast.Add):
        return rounded(left + right)
    if isinstance(node.op, ast.Sub):
        return rounded(left - right)
    return rounded(left * right if isinstance(node.op, ast.Mult) else left / right)


def _rounded(value: Fraction, digits: int, even: bool = False) -> Fraction:
    """Round to significant digits, and halves away from zero or to an even digit."""
    unit = Fraction(1)
    while abs(value) >= unit * 10**digits:
        unit *= 10
    while value and abs(value) < unit * 10 ** (digits - 1):
        unit /= 10
    units = abs(value) / unit
    nearest = (round(units) if even else math.floor(units + Fraction(1, 2))) * unit
    return nearest if value > 0 else -nearest


def _decimal(value: Fraction) -> str:
    """Write a number whose denominator divides a power of ten."""
    places = 0
    while value * 10**places % 1:
        places += 1
    number = f"{abs(int(value * 10**places)):0{places + 1}}"
    sign = "-" if value < 0 else ""
    return f"{sign}{number[: len(number) - places]}.{number[len(number) - places :]}".rstrip(".")
