"""Expressions in an answer: parsed by a small grammar and computed here, never evaluated as a program.

Every function bounds the length and the depth of the text, and the size of what it computes.
"""

from __future__ import annotations

import ast
import cmath
import math
import re
import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple, TypeAlias

from gem_core._util.expressions import parse_expression

_LONGEST = 1000
_LONGEST_LITERAL = 10_000
_DEEPEST = 50
_LARGEST_POWER = 20_000
"""Maximum number of bits of the result of a power."""
_MOST_TERMS = 500
_ARITHMETIC = re.compile(r"[0-9.+\-*/%()\s]+")
# Every token is maximal, so there is one way to read a text and no long backtracking.
_LITERAL = re.compile(r"""(?:'[^'"\\\n]*'|"[^'"\\\n]*"|-?[0-9]{1,9}(?![0-9.]|\s+[0-9-])|[\[\](),\s])+""")
"""Strings, whole numbers, and what stands between them; numbers with only spaces between them are no list."""
_ALGEBRAIC = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?![\w.])|[A-Za-z]+(?![\w.])|[+\-*/(),\s])+", re.ASCII)
_REFUSED = (SyntaxError, ValueError, ArithmeticError, MemoryError, RecursionError)

_DRAWS = 200
_POINTS, _FEWEST_POINTS = 10, 4
_TOLERANCE = 1e-9
_CONSTANTS = {"pi": math.pi, "E": math.e, "C": 0.61803}
"""Value of ``C``, the constant of an integral; any value works."""


def literal(text: str) -> Any:
    """Return the value of nested lists or tuples of strings and whole numbers.

    Raises:
        ValueError: The text is not such a list or tuple.
    """
    if len(text) > _LONGEST_LITERAL or not _LITERAL.fullmatch(text) or _too_deep(text):
        raise ValueError("not a list of strings and whole numbers")
    return ast.literal_eval(parse_expression(text))


def arithmetic(text: str) -> Fraction | None:
    """Return the value of an expression of numbers and ``+ - * / // % **``; None if it is not one."""
    if not _ARITHMETIC.fullmatch(text):
        return None
    try:
        return _number(_parsed(text))
    except _REFUSED:
        return None


def is_antiderivative(answer: str, integrand: str, variable: str) -> bool:
    """Return whether the derivative of the answer is the integrand, by their values at 10 points.

    The points depend on both texts, and lie where the integrand is real. The derivative is exact up to
    rounding (dual numbers).

    Args:
        answer: Expression of numbers, the variable, ``C``, ``pi``, ``E``, and elementary functions.
        integrand: The same, from the item.
        variable: Name of the variable.
    """
    try:
        trees = _algebra(answer, {variable, *_CONSTANTS}), _algebra(integrand, {variable, *_CONSTANTS})
    except _REFUSED:
        return False
    random = Random(zlib.crc32(f"{answer}\n{integrand}".encode()))
    compared = 0
    for draw in range(_DRAWS):
        point = random.uniform(-1, 1) * (0.1, 1.0, 10.0)[draw % 3]
        names = {variable: _Dual(point, 1.0), **{name: _Dual(value) for name, value in _CONSTANTS.items()}}
        try:
            right, slope = _dual(trees[1], names).value, _dual(trees[0], names).slope
        except _REFUSED:  # undefined there
            continue
        size = 1 + abs(right) + abs(slope)
        if not math.isfinite(size) or abs(right.imag) > _TOLERANCE * size:
            continue
        if abs(slope - right) > _TOLERANCE * size:
            return False
        compared += 1
        if compared == _POINTS:
            break
    return compared >= _FEWEST_POINTS


def is_expanded(answer: str, expected: str, variables: list[str]) -> bool:
    """Return whether the answer is the expected polynomial, written as a sum of terms in any order.

    A bracket may have a numeric factor, as in ``2*(x + 1)``; a product of sums is not expanded.
    """
    names = {name: {_unit(place, len(variables)): Fraction(1)} for place, name in enumerate(variables)}
    try:
        a, b = (_polynomial(_algebra(text, set(names)), names) for text in (answer, expected))
    except _REFUSED:
        return False
    return a == b


def _parsed(text: str) -> ast.expr:
    text = text.strip()
    if len(text) > _LONGEST or text.count("(") != text.count(")") or _too_deep(text):
        raise ValueError("the expression is too long, is too deep, or has an unmatched bracket")
    return parse_expression(text)


def _too_deep(text: str) -> bool:
    """Return whether the brackets in a text are nested more than `_DEEPEST` deep."""
    if text.count("(") + text.count("[") <= _DEEPEST:  # the usual case
        return False
    depth = 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if depth > _DEEPEST:
            return True
    return False


def _algebra(text: str, names: set[str]) -> ast.expr:
    if not _ALGEBRAIC.fullmatch(text):
        raise ValueError("not an expression")
    tree = _parsed(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in (_FUNCTIONS if id(node) in called else names):
            raise ValueError(f"unknown name {node.id}")
    return tree


def _number(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() as value):
            return Fraction(value)
        case ast.Constant(value=float() as value):
            return Fraction(str(value))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _number(operand)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(_number(left), op, _number(right))
    raise ValueError(f"{type(node).__name__} is not arithmetic")


def _combined(a: Fraction, op: ast.operator, b: Fraction) -> Fraction:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div():
            return a / b
        case ast.FloorDiv():
            return Fraction(a // b)
        case ast.Mod():
            return a % b
        case ast.Pow():
            return _power(a, b)
    raise ValueError(f"{type(op).__name__} is not an operator of arithmetic")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator > 1:
        root = complex(base) ** complex(exponent)
        if root.imag or not cmath.isfinite(root):
            raise ValueError("no real value")
        return Fraction(root.real)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits * abs(exponent.numerator) > _LARGEST_POWER:
        raise OverflowError("the power is too large")
    return Fraction(base**exponent.numerator)


Polynomial: TypeAlias = dict[tuple[int, ...], Fraction]
"""Maps exponents of the variables to nonzero coefficients."""


def _unit(place: int, size: int) -> tuple[int, ...]:
    return tuple(int(n == place) for n in range(size))


def _polynomial(node: ast.expr, names: Mapping[str, Polynomial]) -> Polynomial:
    zero = (0,) * len(names)
    match node:
        case ast.Constant(value=int() as value):
            return {zero: Fraction(value)} if value else {}
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _polynomial(operand, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return {term: -factor for term, factor in _polynomial(operand, names).items()}
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            return _sum(
                _polynomial(left, names), _polynomial(right, names), -1 if isinstance(op, ast.Sub) else 1
            )
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product(_polynomial(left, names), _polynomial(right, names))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _product(_polynomial(left, names), _raised(_polynomial(right, names), -1))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = _polynomial(right, names).get(zero, Fraction(0))
            if exponent.denominator > 1 or set(_polynomial(right, names)) - {zero}:
                raise ValueError("the exponent is not a whole number")
            return _raised(_polynomial(left, names), exponent.numerator)
    raise ValueError(f"{type(node).__name__} is not part of a polynomial")


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    total = dict(a)
    for term, factor in b.items():
        total[term] = total.get(term, Fraction(0)) + sign * factor
    return {term: factor for term, factor in total.items() if factor}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    numbers = [len(p) <= 1 and not any(map(any, p)) for p in (a, b)]
    if not any(numbers) and (len(a) > 1 or len(b) > 1):
        raise ValueError("the product is not expanded")
    return {
        tuple(i + j for i, j in zip(x, y, strict=True)): p * q for x, p in a.items() for y, q in b.items()
    }


def _raised(base: Polynomial, exponent: int) -> Polynomial:
    if len(base) == 1 and abs(exponent) <= _MOST_TERMS:
        ((term, factor),) = base.items()
        return {tuple(n * exponent for n in term): _power(factor, Fraction(exponent))}
    if exponent == 1:
        return base
    raise ValueError("the power is not expanded")


class _Dual(NamedTuple):
    """A value and its derivative with respect to the variable."""

    value: complex
    slope: complex = 0.0


def _dual(node: ast.expr, names: Mapping[str, _Dual]) -> _Dual:
    match node:
        case ast.Constant(value=int() | float() as value):
            return _Dual(complex(value))
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _dual(operand, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            a = _dual(operand, names)
            return _Dual(-a.value, -a.slope)
        case ast.BinOp(left=left, op=op, right=right):
            return _combined_dual(_dual(left, names), op, _dual(right, names))
        case ast.Call(func=ast.Name(id="log"), args=[x, base], keywords=[]):
            a, b = (_applied("log", _dual(argument, names)) for argument in (x, base))
            return _combined_dual(a, ast.Div(), b)
        case ast.Call(func=ast.Name(id=name), args=[x], keywords=[]):
            return _applied(name, _dual(x, names))
    raise ValueError(f"{type(node).__name__} is not part of an expression")


def _combined_dual(a: _Dual, op: ast.operator, b: _Dual) -> _Dual:
    match op:
        case ast.Add():
            return _Dual(a.value + b.value, a.slope + b.slope)
        case ast.Sub():
            return _Dual(a.value - b.value, a.slope - b.slope)
        case ast.Mult():
            return _Dual(a.value * b.value, a.slope * b.value + a.value * b.slope)
        case ast.Div():
            return _Dual(a.value / b.value, (a.slope * b.value - a.value * b.slope) / b.value**2)
        case ast.Pow():
            value = complex(a.value) ** b.value
            slope = b.value * complex(a.value) ** (b.value - 1) * a.slope if a.slope else 0.0
            return _Dual(value, slope + (value * cmath.log(a.value) * b.slope if b.slope else 0.0))
    raise ValueError(f"{type(op).__name__} is not an operator of algebra")


def _applied(name: str, x: _Dual) -> _Dual:
    if name == "Abs":
        return _Dual(abs(x.value), (complex(x.value).conjugate() * x.slope).real / abs(x.value))
    function, derivative = _FUNCTIONS[name]
    return _Dual(function(x.value), derivative(x.value) * x.slope)


_FUNCTIONS: dict[str, tuple[Callable[[complex], complex], Callable[[complex], complex]]] = {
    "sin": (cmath.sin, cmath.cos),
    "cos": (cmath.cos, lambda z: -cmath.sin(z)),
    "tan": (cmath.tan, lambda z: 1 / cmath.cos(z) ** 2),
    "cot": (lambda z: 1 / cmath.tan(z), lambda z: -1 / cmath.sin(z) ** 2),
    "sec": (lambda z: 1 / cmath.cos(z), lambda z: cmath.tan(z) / cmath.cos(z)),
    "csc": (lambda z: 1 / cmath.sin(z), lambda z: -1 / (cmath.tan(z) * cmath.sin(z))),
    "asin": (cmath.asin, lambda z: 1 / cmath.sqrt(1 - z * z)),
    "acos": (cmath.acos, lambda z: -1 / cmath.sqrt(1 - z * z)),
    "atan": (cmath.atan, lambda z: 1 / (1 + z * z)),
    "sinh": (cmath.sinh, cmath.cosh),
    "cosh": (cmath.cosh, cmath.sinh),
    "tanh": (cmath.tanh, lambda z: 1 / cmath.cosh(z) ** 2),
    "asinh": (cmath.asinh, lambda z: 1 / cmath.sqrt(z * z + 1)),
    "acosh": (cmath.acosh, lambda z: 1 / (cmath.sqrt(z - 1) * cmath.sqrt(z + 1))),
    "atanh": (cmath.atanh, lambda z: 1 / (1 - z * z)),
    "exp": (cmath.exp, cmath.exp),
    "log": (cmath.log, lambda z: 1 / z),
    "ln": (cmath.log, lambda z: 1 / z),
    "sqrt": (cmath.sqrt, lambda z: 1 / (2 * cmath.sqrt(z))),
    "cbrt": (lambda z: complex(z) ** (1 / 3), lambda z: complex(z) ** (-2 / 3) / 3),
    "Abs": (abs, abs),
}
"""Each function and its derivative; for ``Abs``, it depends on the slope, see `_applied`."""
