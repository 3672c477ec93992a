"""Evaluates an expression at a point: to a fraction if it is rational, otherwise to a `Ball`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

from gem_envs.graders import _balls
from gem_envs.graders._balls import Ball, Unclear, ball
from gem_envs.graders._trees import EXPRESSIONS, Tree, children

Number: TypeAlias = Fraction | Ball
_LARGEST = 20_000
"""Maximum number of bits of a power that is computed exactly."""
_MOST_TERMS = (300, 10)
"""Maximum numbers of terms of a sum or product that is computed term by term, and of one inside another."""
WHOLE_POINTS = range(25, 41)
"""Points at which all variables are whole numbers; at the points 0 to 3 they are fractions."""
WIDE_POINTS = range(9, 25)
"""Points at which variables have large values of both signs, which tell step functions apart."""
ROUGH = 30
"""Digits of a first comparison."""


class Opaque(Exception):
    """Raised when an expression has a part without a known value, such as a limit or f(x)."""


def evaluate(tree: Tree, point: int, digits: int = ROUGH) -> Number | None:
    """Return the value at one of the points; None if it is undefined, too large, or needs more digits.

    Raises:
        Opaque: A part has no known value.
    """
    with localcontext() as context:
        context.prec = digits
        try:
            return _value(tree, point, {})
        except (ArithmeticError, ValueError, TypeError):
            return None


def same_number(a: Number, b: Number, digits: int = ROUGH) -> bool | None:
    """Return False for different values, and None if the digits do not tell them apart."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    with localcontext() as context:
        context.prec = digits
        difference = _balls.add(to_ball(a), _balls.negative(to_ball(b)))
        return False if _balls.lower_bound(difference) else None


def certain(a: Number, b: Number, digits: int) -> bool:
    """Return whether both values are known to at least half of the digits, so that their match tells much."""
    with localcontext() as context:
        context.prec = digits
        a, b = to_ball(a), to_ball(b)
        largest = max(_balls.size(a), _balls.size(b))
        allowed = Decimal(1).scaleb(-digits // 2)
        return max(a.rad, b.rad) <= allowed * largest or max(a.rad, b.rad, largest) <= allowed


def to_ball(value: Number) -> Ball:
    """Return a value as a ball."""
    return ball(value) if isinstance(value, Fraction) else value


def digits_needed(tree: Tree) -> int:
    """Return how many digits the numbers of a constant may span: of its literals, powers, and exponentials.

    Raises:
        Opaque: A part has no known value.
    """
    kind = tree[0]
    if kind == "n":
        return math.ceil(math.log10(abs(tree[1].numerator) or 1) + math.log10(tree[1].denominator)) or 1
    if kind == "v":
        return 1
    if kind == "f":
        own = digits_needed(tree[2]) + (digits_needed(tree[3]) if tree[3] else 0)
        if tree[1] in ("exp", "sinh", "cosh", "tanh"):
            own += _magnitude(tree[2])
        return own + (3 * _magnitude(tree[2]) if tree[1] in ("!", "!!", "binom") else 0)
    if kind == "-":
        return digits_needed(tree[1])
    if kind == "^":
        return digits_needed(tree[1]) * max(1, _magnitude(tree[2])) + digits_needed(tree[2])
    if kind == "o":
        return 40
    return digits_needed(tree[1]) + digits_needed(tree[2])


def _magnitude(tree: Tree) -> int:
    value = evaluate(tree, 0)
    if value is None:
        return 1
    return min(int(_balls.size(to_ball(value))) + 1, 10**6)


_Bound: TypeAlias = Mapping[str, Fraction]


def _value(tree: Tree, point: int, bound: _Bound) -> Number:
    kind = tree[0]
    if kind == "n":
        number: Fraction = tree[1]
        return number
    if kind == "v":
        name = tree[1]
        return bound[name] if name in bound else _name(name, point)
    if kind == "f":
        return _function(tree[1], _value(tree[2], point, bound), tree[3] and _value(tree[3], point, bound))
    if kind == "o":
        return _operator(tree[1], tree[2], point, bound)
    a = _value(tree[1], point, bound)
    if kind == "-":
        return -a if isinstance(a, Fraction) else _balls.negative(a)
    b = _value(tree[2], point, bound)
    if kind == "^":
        if tree[1] == ("v", "e") and "e" not in bound:
            return Fraction(1) if b == 0 else _balls.exp(to_ball(b))
        return _power(a, b)
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b if kind == "+" else a * b if kind == "*" else a / b
    if kind == "*" and 0 in (a, b):
        return Fraction(0)
    y, z = to_ball(a), to_ball(b)
    return _balls.add(y, z) if kind == "+" else _balls.multiply(y, z) if kind == "*" else _balls.divide(y, z)


def _name(name: str, point: int) -> Number:
    """Return a constant, or the value of a variable: a number that no formula is likely to favor."""
    if name == "pi":
        pi = _balls.pi()
        return Ball(pi, Decimal(0), pi.scaleb(-len(pi.as_tuple().digits) + 1))
    if name == "e":
        return _e(getcontext().prec)
    if name == "i":
        return Ball(Decimal(0), Decimal(1), Decimal(0))
    if name == "infty":
        raise ValueError("infinity is not a number")
    return _sample(name, point)


@lru_cache(maxsize=64)
def _e(_: int) -> Ball:
    """Return e with the precision of the context, which is the argument."""
    return _balls.exp(ball(1))


@lru_cache(maxsize=4096)
def _sample(name: str, point: int) -> Fraction:
    draw = int.from_bytes(blake2b(f"{name} {point}".encode(), digest_size=4).digest(), "big")
    if point in WHOLE_POINTS:
        return Fraction(draw % 20 + 2)
    if point in WIDE_POINTS:
        return Fraction(draw % 9_999_991 - 5_000_000, 65_537)
    value = Fraction(draw % 99_991 + 31_013, 65_537)
    return -value if point == 3 or (point == 2 and draw & 1) else value


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction):
        whole = exponent.numerator
        if isinstance(base, Fraction):
            if exponent.denominator == 1:
                bits = max(base.numerator.bit_length(), base.denominator.bit_length())
                if bits * abs(whole) > _LARGEST:
                    raise OverflowError
                return Fraction(base**whole)
            if exponent.denominator == 2 and base >= 0 and abs(whole) < _LARGEST:
                return _power(_root(base), Fraction(whole))
            if not base:
                if exponent < 0:
                    raise ZeroDivisionError
                return Fraction(0)
        elif exponent.denominator == 1 and abs(whole) < _LARGEST:
            return _balls.power(base, whole)
    return _balls.exp(_balls.multiply(to_ball(exponent), _balls.log(to_ball(base))))


def _root(value: Fraction) -> Number:
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    return _balls.sqrt(ball(value))


def _factorial(x: Number) -> Number:
    """Return x! for a whole number or half of one: (n - 1/2)! is (2n)! sqrt(pi) / (4^n n!)."""
    if not isinstance(x, Fraction) or x.denominator > 2 or not -150 < x <= 1000:
        raise ValueError("the factorial is too large, or not known")
    if x.denominator == 1:
        return Fraction(math.factorial(int(x)))
    n = int(x + Fraction(1, 2))
    if n >= 0:
        ratio = Fraction(math.factorial(2 * n), 4**n * math.factorial(n))
    else:
        ratio = Fraction((-4) ** -n * math.factorial(-n), math.factorial(-2 * n))
    return _balls.multiply(ball(ratio), _balls.sqrt(to_ball(_name("pi", 0))))


def _double_factorial(x: Number) -> Fraction:
    if not isinstance(x, Fraction) or x.denominator != 1 or not -1 <= x <= 1000:
        raise ValueError("no double factorial")
    return Fraction(math.prod(range(int(x), 0, -2)))


def _binomial(n: Number, k: Number) -> Number:
    """Return a binomial coefficient: exactly for a whole k, otherwise by factorials."""
    if not isinstance(n, Fraction) or not isinstance(k, Fraction) or abs(n) > 10_000 or abs(k) > 10_000:
        raise ValueError("the binomial coefficient is too large")
    if n.denominator == k.denominator == 1 and n >= 0:
        return Fraction(math.comb(int(n), int(k))) if k >= 0 else Fraction(0)
    if k.denominator == 1 and 0 <= k <= 100:
        return Fraction(math.prod((n - i for i in range(int(k))), start=Fraction(1)) / math.factorial(int(k)))
    bottom = _balls.multiply(to_ball(_factorial(k)), to_ball(_factorial(n - k)))
    return _balls.divide(to_ball(_factorial(n)), bottom)


def _nth_root(x: Number, degree: Number) -> Number:
    if degree == 2:
        return _root(x) if isinstance(x, Fraction) and x >= 0 else _balls.sqrt(to_ball(x))
    if isinstance(degree, Fraction) and degree.denominator == 1:
        real = x if isinstance(x, Fraction) else x.re if not x.im else None
        if real is not None and real < 0 and degree.numerator % 2:
            opposite = -x if isinstance(x, Fraction) else _balls.negative(x)
            root = _nth_root(opposite, degree)
            return -root if isinstance(root, Fraction) else _balls.negative(root)
        if isinstance(x, Fraction) and 0 <= x < 2**200 and 0 < degree < 200:
            whole = round(float(x) ** (1 / float(degree)))
            if whole ** int(degree) == x:
                return Fraction(whole)
    if isinstance(degree, Fraction):
        return _power(x, 1 / degree)
    return _power(x, _balls.inverse(degree))


def _whole_part(name: str, x: Number) -> Fraction:
    if isinstance(x, Fraction):
        return Fraction(math.floor(x) if name == "floor" else math.ceil(x))
    if x.im:
        raise ValueError("not real")
    low, high = math.floor(x.re - x.rad), math.floor(x.re + x.rad)
    if low != high:
        raise Unclear
    return Fraction(low if name == "floor" else low + 1)


def _function(name: str, x: Number, extra: Number | None) -> Number:
    if name == "sqrt":
        return _nth_root(x, Fraction(2) if extra is None else extra)
    if name == "abs":
        return abs(x) if isinstance(x, Fraction) else _balls.magnitude(x)
    if name == "deg":
        return _balls.divide(_balls.multiply(to_ball(x), to_ball(_name("pi", 0))), ball(180))
    if name == "!":
        return _factorial(x)
    if name == "!!":
        return _double_factorial(x)
    if name == "binom" and extra is not None:
        return _binomial(x, extra)
    if name in ("floor", "ceil"):
        return _whole_part(name, x)
    z = to_ball(x)
    if name in ("ln", "log"):
        if extra is None and name == "ln":
            return _balls.log(z)
        return _balls.divide(_balls.log(z), _balls.log(ball(10) if extra is None else to_ball(extra)))
    if name == "exp":
        return _balls.exp(z)
    if name in ("sinh", "cosh", "tanh"):
        up, down = _balls.exp(z), _balls.exp(_balls.negative(z))
        difference, total = _balls.add(up, _balls.negative(down)), _balls.add(up, down)
        if name == "tanh":
            return _balls.divide(difference, total)
        return _balls.multiply(ball(Fraction(1, 2)), difference if name == "sinh" else total)
    plain = name.replace("arc", "a")
    if plain == "atan":
        return _balls.arctan(z)
    if plain in ("asin", "acos"):
        angle = _balls.arcsin(z)
        if plain == "asin":
            return angle
        return _balls.add(_balls.divide(to_ball(_name("pi", 0)), ball(2)), _balls.negative(angle))
    sine, cosine = _balls.sine_cosine(z)
    if name in ("tan", "cot"):
        return _balls.divide(*((sine, cosine) if name == "tan" else (cosine, sine)))
    if name in ("sec", "csc"):
        return _balls.inverse(cosine if name == "sec" else sine)
    if name not in ("sin", "cos"):
        raise ValueError(name)
    return sine if name == "sin" else cosine


def _operator(name: str, parts: tuple[Tree, ...], point: int, bound: _Bound) -> Number:
    """Return the value of an operator on known numbers.

    Raises:
        Opaque: The value is not known.
    """
    if name in ("sum", "prod"):
        return _repeated(name, parts, point, bound)
    if name not in ("gcd", "lcm", "max", "min", "bmod", "Re", "Im", "conjugate"):
        raise Opaque
    if any(part[0] not in EXPRESSIONS or _free(part, bound) for part in parts):
        raise Opaque
    values = [_value(part, point, bound) for part in parts]
    if name in ("Re", "Im", "conjugate"):
        z = to_ball(values[0])
        if name == "conjugate":
            return Ball(z.re, -z.im, z.rad)
        return Ball(z.re if name == "Re" else z.im, Decimal(0), z.rad)
    if any(not isinstance(value, Fraction) for value in values):
        raise Opaque
    numbers = [value for value in values if isinstance(value, Fraction)]
    if name in ("max", "min"):
        return max(numbers) if name == "max" else min(numbers)
    if any(value.denominator != 1 for value in numbers):
        raise Opaque
    whole = [int(value) for value in numbers]
    if name == "bmod":
        return Fraction(whole[0] % whole[1])
    return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))


def _repeated(name: str, parts: tuple[Tree, ...], point: int, bound: _Bound) -> Number:
    variable, start, end, term = parts
    if len(bound) == len(_MOST_TERMS) or any(_free(limit, bound) for limit in (start, end)):
        raise Opaque
    first, last = _value(start, point, bound), _value(end, point, bound)
    if not isinstance(first, Fraction) or not isinstance(last, Fraction):
        raise Opaque
    if first.denominator != 1 or last.denominator != 1 or last - first > _MOST_TERMS[len(bound)]:
        raise Opaque
    total: Number = Fraction(0 if name == "sum" else 1)
    for index in range(int(first), int(last) + 1):
        value = _value(term, point, {**bound, variable[1]: Fraction(index)})
        if isinstance(total, Fraction) and isinstance(value, Fraction):
            total = total + value if name == "sum" else total * value
        else:
            combine = _balls.add if name == "sum" else _balls.multiply
            total = combine(to_ball(total), to_ball(value))
    return total


def _free(tree: Tree, bound: _Bound) -> bool:
    """Return whether a tree has a variable without a value, or infinity."""
    if tree[0] == "v":
        return tree[1] not in ("pi", "e", "i") and tree[1] not in bound
    return any(_free(part, bound) for part in children(tree))
