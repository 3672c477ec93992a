"""Arithmetic with complex numbers of many digits that keeps a bound on its error.

A `Ball` is a decimal approximation and a radius that is certain to reach the true value. Two values differ
if their balls are disjoint. Call these functions inside ``decimal.localcontext`` with the precision to use.
Sources of the formulas: DLMF 4.5, 4.21, 4.24 (series), and the mean value theorem for the radii.
"""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

_ZERO, _ONE, _TWO = Decimal(0), Decimal(1), Decimal(2)


class Unclear(ArithmeticError):
    """Raised when a value needs more digits, or has a branch point within its radius."""


class Ball(NamedTuple):
    """All complex numbers whose distance from ``re + im * i`` is at most `rad`."""

    re: Decimal
    im: Decimal
    """Exactly 0 for a real number."""
    rad: Decimal


def ball(value: Fraction | int) -> Ball:
    """Return the ball of a rational number."""
    if value.denominator == 1:
        re = +Decimal(value.numerator)
        return Ball(re, _ZERO, _ZERO if re == value.numerator else _ulp(re))
    re = Decimal(value.numerator) / Decimal(value.denominator)
    return Ball(re, _ZERO, _ulp(re))


def _ulp(size: Decimal) -> Decimal:
    """Return a bound on the error of rounding a few numbers of this size."""
    return abs(size).scaleb(3 - getcontext().prec)


def size(z: Ball) -> Decimal:
    """Return an upper bound of the absolute value of the center."""
    return abs(z.re) + abs(z.im)


def lower_bound(z: Ball) -> Decimal:
    """Return a lower bound of the absolute value; 0 if the ball contains 0."""
    return max(max(abs(z.re), abs(z.im)) - z.rad, _ZERO)


def add(a: Ball, b: Ball) -> Ball:
    """Return a + b."""
    re, im = a.re + b.re, a.im + b.im
    return Ball(re, im, a.rad + b.rad + _ulp(size(a) + size(b)))


def negative(a: Ball) -> Ball:
    """Return -a."""
    return Ball(-a.re, -a.im, a.rad)


def multiply(a: Ball, b: Ball) -> Ball:
    """Return the product."""
    sizes = size(a), size(b)
    rad = sizes[0] * b.rad + sizes[1] * a.rad + a.rad * b.rad + _ulp(sizes[0] * sizes[1])
    if not a.im and not b.im:
        return Ball(a.re * b.re, _ZERO, rad)
    return Ball(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re, rad)


def inverse(a: Ball) -> Ball:
    """Return 1/a.

    Raises:
        Unclear: The ball contains 0.
        ZeroDivisionError: It is exactly 0.
    """
    low = lower_bound(a)
    if not low:
        if not a.rad:
            raise ZeroDivisionError
        raise Unclear
    if not a.im:
        re, im = 1 / a.re, _ZERO
    else:
        square = a.re * a.re + a.im * a.im
        re, im = a.re / square, -a.im / square
    return Ball(re, im, a.rad / (low * low) + _ulp(_TWO / low))


def divide(a: Ball, b: Ball) -> Ball:
    """Return a/b; see `inverse` for the errors."""
    return multiply(a, inverse(b))


def magnitude(a: Ball) -> Ball:
    """Return the absolute value."""
    if not a.im:
        return Ball(abs(a.re), _ZERO, a.rad)
    return Ball((a.re * a.re + a.im * a.im).sqrt(), _ZERO, a.rad + _ulp(size(a)))


def power(a: Ball, n: int) -> Ball:
    """Return a to a whole power."""
    if n < 0:
        return inverse(power(a, -n))
    result = Ball(_ONE, _ZERO, _ZERO)
    while n:
        if n & 1:
            result = multiply(result, a)
        n >>= 1
        if n:
            a = multiply(a, a)
    return result


def sqrt(a: Ball) -> Ball:
    """Return the principal square root."""
    if a.im:
        return exp(multiply(ball(Fraction(1, 2)), log(a)))
    if a.re < 0:
        root = sqrt(negative(a))
        return Ball(_ZERO, root.re, root.rad)
    root_ = a.re.sqrt()
    if not a.rad:
        return Ball(root_, _ZERO, _ulp(root_))
    if a.re <= a.rad:
        return Ball(root_, _ZERO, (a.re + a.rad).sqrt() * _TWO)
    return Ball(root_, _ZERO, a.rad / root_ + _ulp(root_))


def exp(a: Ball) -> Ball:
    """Return e to the power a.

    Raises:
        Unclear: The radius is too large for a useful bound.
    """
    if a.rad > _ONE:
        raise Unclear
    length = a.re.exp()
    rad = length * (a.rad * _TWO) + _ulp(length)
    if not a.im:
        return Ball(length, _ZERO, rad)
    sine, cosine = _sine_cosine(a.im)
    return Ball(length * cosine, length * sine, rad)


def log(a: Ball) -> Ball:
    """Return the principal value of the natural logarithm.

    Raises:
        Unclear: The ball contains 0.
        ZeroDivisionError: It is exactly 0.
    """
    low = lower_bound(a)
    if not low:
        raise Unclear if a.rad else ZeroDivisionError
    rad = a.rad / low * _TWO
    if not a.im and a.re > 0:
        re, im = a.re.ln(), _ZERO
    else:
        re, im = (a.re * a.re + a.im * a.im).ln() / 2, _angle(a)
    return Ball(re, im, rad + _ulp(abs(re) + _TWO * 3))


def _angle(a: Ball) -> Decimal:
    if abs(a.im) <= a.rad:  # the branch cut: -1, rather than a number close to it
        return pi() if a.re < 0 else _ZERO
    if abs(a.re) >= abs(a.im):
        angle = _arctan(a.im / a.re)
        return angle if a.re > 0 else angle + (pi() if a.im > 0 else -pi())
    quarter = pi() / 2
    return (quarter if a.im > 0 else -quarter) - _arctan(a.re / a.im)


def sine_cosine(a: Ball) -> tuple[Ball, Ball]:
    """Return sine and cosine; see `exp` for the errors."""
    if not a.im:
        if a.rad > _ONE:
            raise Unclear
        sine, cosine = _sine_cosine(a.re)
        rad = a.rad + _ulp(_ONE)
        return Ball(sine, _ZERO, rad), Ball(cosine, _ZERO, rad)
    turned = exp(Ball(-a.im, a.re, a.rad))
    back = inverse(turned)
    half = ball(Fraction(1, 2))
    cosine_ = multiply(half, add(turned, back))
    difference = multiply(half, add(turned, negative(back)))
    return Ball(difference.im, -difference.re, difference.rad), cosine_


def arctan(a: Ball) -> Ball:
    """Return the principal value of the arctangent."""
    if not a.im:
        slope = 1 / (1 + lower_bound(a) ** 2)
        return Ball(_arctan(a.re), _ZERO, a.rad * slope + _ulp(_TWO))
    rotated = Ball(-a.im, a.re, a.rad)  # i a
    one = ball(1)
    difference = add(log(add(one, negative(rotated))), negative(log(add(one, rotated))))
    return Ball(-difference.im / 2, difference.re / 2, difference.rad)


def arcsin(a: Ball) -> Ball:
    """Return the principal value of the arcsine."""
    one = ball(1)
    root = sqrt(add(one, negative(multiply(a, a))))
    if not a.im and not root.im and lower_bound(root):
        return arctan(divide(a, root))
    if not a.im and not root.im:  # at -1 and 1
        quarter = pi() / 2
        return Ball(quarter.copy_sign(a.re), _ZERO, _TWO * _TWO * root.rad + size(root) * _TWO + _ulp(_TWO))
    turned = log(add(Ball(-a.im, a.re, a.rad), root))
    return Ball(turned.im, -turned.re, turned.rad)


@lru_cache(maxsize=64)
def _pi(digits: int) -> Decimal:
    """Return pi by Machin's formula, 16 arctan(1/5) - 4 arctan(1/239)."""
    one: int = 10 ** (digits + 10)

    def inverse_tangent(n: int) -> int:
        term: int = one // n
        total = term
        k, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    return Decimal(16 * inverse_tangent(5) - 4 * inverse_tangent(239)).scaleb(-digits - 10)


def pi() -> Decimal:
    """Return pi, rounded to the precision of the context."""
    return +_pi(getcontext().prec + 5)


def _sine_cosine(x: Decimal) -> tuple[Decimal, Decimal]:
    """Return sine and cosine of a real number, reduced by multiples of pi/2 with enough digits."""
    context = getcontext()
    digits = context.prec
    extra = max(x.adjusted(), 0) + 12 + math.isqrt(digits)
    if extra > 2000:
        raise Unclear
    context.prec = digits + extra
    try:
        quarter = _pi(digits + extra + 5) / 2
        turns = int((x / quarter).to_integral_value())
        rest = x - turns * quarter
        doublings = max(3, math.isqrt(digits) // 3)
        rest /= 2**doublings
        square = rest * rest
        term, sine, k = rest, rest, 1
        limit = Decimal(10) ** (-digits - 8)
        while abs(term) > limit:
            k += 2
            term = -term * square / (k * (k - 1))
            sine += term
        cosine = (1 - sine * sine).sqrt()
        for _ in range(doublings):
            sine, cosine = 2 * sine * cosine, 1 - 2 * sine * sine
    finally:
        context.prec = digits
    sine, cosine = +sine, +cosine
    return ((sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine))[turns % 4]


def _arctan(x: Decimal) -> Decimal:
    context = getcontext()
    digits = context.prec
    context.prec = digits + 12 + math.isqrt(digits)
    try:
        if abs(x) > 1:
            return (_pi(digits + 15) / 2).copy_sign(x) - _arctan(1 / x)
        halvings = max(4, math.isqrt(digits) // 2)
        for _ in range(halvings):
            x = x / (1 + (1 + x * x).sqrt())
        square = x * x
        term, total, k = x, x, 1
        limit = Decimal(10) ** (-digits - 8)
        while abs(term) > limit:
            term = -term * square
            k += 2
            total += term / k
        return Decimal(total * 2**halvings)
    finally:
        context.prec = digits
