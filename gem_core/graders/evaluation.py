"""Evaluates an expression at a point: to a fraction if it is rational, otherwise to a complex number."""

from __future__ import annotations

import cmath
import math
import zlib
from fractions import Fraction
from typing import TypeAlias

from gem_core.graders.expressions import Tree

Number: TypeAlias = Fraction | complex
_TOLERANCE = 1e-9
_LARGEST = 20_000
"""Maximum number of bits of a power that is computed exactly."""
_CONSTANTS: dict[str, complex] = {"pi": math.pi, "e": math.e, "i": 1j}


def evaluate(tree: Tree, point: int) -> Number | None:
    """Return the value at one of the points; None if it is undefined or too large."""
    try:
        value = _value(tree, point)
    except (ArithmeticError, ValueError, TypeError):
        return None
    if isinstance(value, Fraction):
        return value
    return value if cmath.isfinite(value) else None


def _value(tree: Tree, point: int) -> Number:
    kind = tree[0]
    if kind == "n":
        number: Fraction = tree[1]
        return number
    if kind == "v":
        return _CONSTANTS.get(tree[1]) or _sample(tree[1], point)
    if kind == "f":
        return _function(tree[1], tree[2], tree[3], point)
    a = _value(tree[1], point)
    if kind == "-":
        return -a
    b = _value(tree[2], point)
    if kind == "^":
        return _power(a, b)
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b if kind == "+" else a * b if kind == "*" else a / b
    y, z = complex(a), complex(b)
    return y + z if kind == "+" else y * z if kind == "*" else y / z


def _sample(name: str, point: int) -> Number:
    """Return the value of a variable: an arbitrary fraction that no formula is likely to favor."""
    if name == "infty":
        raise ValueError("infinity is not a number")
    draw = zlib.crc32(f"{name} {point}".encode())
    value = Fraction(draw % 99_991 + 31_013, 65_537)
    return -value if point == 3 or (point == 2 and draw & 1) else value


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction) and isinstance(base, Fraction):
        if exponent.denominator == 1:
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if bits * abs(exponent.numerator) > _LARGEST:
                raise OverflowError
            return Fraction(base**exponent.numerator)
        if exponent.denominator == 2 and base >= 0:
            return _power(_root(base), Fraction(exponent.numerator))
    return complex(base) ** complex(exponent)


def _root(value: Fraction) -> Number:
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    return complex(math.sqrt(value))


def _function(name: str, argument: Tree, extra: Tree | None, point: int) -> Number:
    x = _value(argument, point)
    if name == "sqrt":
        degree = Fraction(2) if extra is None else _value(extra, point)
        if degree == 2 and isinstance(x, Fraction) and x >= 0:
            return _root(x)
        if isinstance(degree, Fraction) and degree.denominator == 1 and isinstance(x, Fraction):
            odd = bool(degree.numerator % 2)
            root = round(abs(x) ** (1 / float(degree))) if abs(x) < 2**52 else 0
            sign = -1 if x < 0 and odd else 1
            if (x >= 0 or odd) and sign * root**degree.numerator == x:
                return Fraction(sign * root)
            if x < 0 and odd:
                return -(complex(-x) ** (1 / complex(degree)))
        return complex(x) ** (1 / complex(degree))
    if name == "abs":
        return abs(x) if isinstance(x, Fraction) else complex(abs(x))
    if name == "deg":
        return complex(x) * math.pi / 180
    if name == "!":
        if not isinstance(x, Fraction) or x.denominator != 1 or not 0 <= x <= 1000:
            raise ValueError("no factorial")
        return Fraction(math.factorial(int(x)))
    if name == "binom":
        k = _value(extra, point) if extra else x
        if not (isinstance(x, Fraction) and isinstance(k, Fraction) and x.denominator == k.denominator == 1):
            raise ValueError("no binomial")
        if not 0 <= k <= x <= 10_000:
            raise ValueError("no binomial")
        return Fraction(math.comb(int(x), int(k)))
    if name in ("floor", "ceil"):
        if not isinstance(x, Fraction):
            if abs(x.imag) > _TOLERANCE or abs(x.real - round(x.real)) < _TOLERANCE:
                raise ValueError("no certain whole part")
            x = Fraction(x.real)
        return Fraction(math.floor(x) if name == "floor" else math.ceil(x))
    z = complex(x)
    if name in ("ln", "log"):
        base = 10 if name == "log" else math.e
        return cmath.log(z) / cmath.log(complex(_value(extra, point)) if extra else base)
    if name in ("cot", "sec", "csc"):
        return 1 / {"cot": cmath.tan, "sec": cmath.cos, "csc": cmath.sin}[name](z)
    plain = name.replace("arc", "a")
    known = {"sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "asin", "acos", "atan"}
    if plain not in known:
        raise ValueError(name)
    result: complex = getattr(cmath, plain)(z)
    return result
