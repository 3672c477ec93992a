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
WHOLE_POINTS = range(4, 9)
"""Points at which all variables are whole numbers; at the points 0 to 3 they are fractions."""
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
    """Return the value of a variable: an arbitrary number that no formula is likely to favor."""
    if name == "infty":
        raise ValueError("infinity is not a number")
    draw = zlib.crc32(f"{name} {point}".encode())
    if point in WHOLE_POINTS:
        return Fraction(draw % 20 + 2)
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


def _factorial(x: Number) -> Number:
    """Return x!, by the gamma function between whole numbers."""
    if not isinstance(x, Fraction) or not -150 < x <= (1000 if x.denominator == 1 else 150):
        raise ValueError("the factorial is too large")
    if x.denominator != 1:
        return complex(math.gamma(x + 1))
    return Fraction(math.factorial(int(x)))


def _binomial(n: Number, k: Number) -> Number:
    """Return a binomial coefficient: exactly for a whole k, otherwise by the gamma function."""
    if not isinstance(n, Fraction) or not isinstance(k, Fraction) or abs(n) > 10_000 or abs(k) > 10_000:
        raise ValueError("the binomial coefficient is too large")
    if n.denominator == k.denominator == 1 and n >= 0:
        return Fraction(math.comb(int(n), int(k)))
    if k.denominator == 1 and 0 <= k <= 100:
        return Fraction(math.prod((n - i for i in range(int(k))), start=Fraction(1)) / math.factorial(int(k)))
    return _factorial(n) / (complex(_factorial(k)) * complex(_factorial(n - k)))


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
        return _factorial(x)
    if name == "binom":
        return _binomial(x, _value(extra, point) if extra else x)
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
