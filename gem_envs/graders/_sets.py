r"""Sets of real numbers in a normal form: sorted intervals that do not touch, with exact ends.

``-1 < x < 2``, ``(-1, 2)``, ``\{x \mid -1 < x < 2\}``, and ``x > -1 \text{ and } x < 2`` have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cmp_to_key
from typing import NamedTuple

from gem_envs.graders._equality import has_variable, order
from gem_envs.graders._trees import EXPRESSIONS, Tree

_INFINITY: Tree = ("v", "infty")
_ZERO: Tree = ("n", Fraction(0), None)
_BELOW: Tree = ("-", _INFINITY)
REALS: Tree = ("v", "blackboard R")
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_MOST = 30
"""Maximum number of intervals."""


class Unknown(Exception):
    """Raised when a text is no set of real numbers, or its ends cannot be ordered."""


class Interval(NamedTuple):
    """The numbers between two ends."""

    low: Tree
    closed_low: bool
    high: Tree
    closed_high: bool


class RealSet(NamedTuple):
    """A set of real numbers, and the variable that a text restricts to it; empty if it names none."""

    name: str
    parts: list[Interval]


_ALL = [Interval(_BELOW, False, _INFINITY, False)]


def real_set(tree: Tree) -> RealSet | None:
    """Return the set that a text describes; None if it is no set of real numbers with known ends."""
    try:
        return _read(tree)
    except Unknown:
        return None


def same_sets(answer: RealSet, reference: RealSet) -> bool:
    """Return whether two sets are equal; the variables must be, if both are named."""
    if answer.name and reference.name and answer.name != reference.name:
        return False
    if len(answer.parts) != len(reference.parts):
        return False
    return all(
        (a.closed_low, a.closed_high) == (b.closed_low, b.closed_high)
        and _order(a.low, b.low) == 0
        and _order(a.high, b.high) == 0
        for a, b in zip(answer.parts, reference.parts, strict=True)
    )


def complement(parts: Sequence[Interval]) -> list[Interval]:
    """Return the real numbers outside of a set in normal form."""
    result, low, closed = [], _BELOW, False
    for part in parts:
        if part.low != _BELOW:
            result.append(Interval(low, closed, part.low, not part.closed_low))
        low, closed = part.high, not part.closed_high
    if low != _INFINITY:
        result.append(Interval(low, closed, _INFINITY, False))
    return result


def intersection(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """Return the normal form of an intersection of two sets in normal form."""
    return complement(union([*complement(a), *complement(b)]))


def union(parts: Sequence[Interval]) -> list[Interval]:
    """Return the normal form of a union."""
    if len(parts) > _MOST:
        raise Unknown
    result: list[Interval] = []
    for part in sorted((p for p in parts if not _empty(p)), key=cmp_to_key(_by_low)):
        if result:
            last = result[-1]
            gap = _order(last.high, part.low)
            if gap > 0 or (gap == 0 and (last.closed_high or part.closed_low)):
                beyond = _order(part.high, last.high)
                if beyond > 0:
                    result[-1] = last._replace(high=part.high, closed_high=part.closed_high)
                elif beyond == 0:
                    result[-1] = last._replace(closed_high=last.closed_high or part.closed_high)
                continue
        result.append(part)
    return result


def _order(a: Tree, b: Tree) -> int:
    result = order(a, b)
    if result is None:
        raise Unknown
    return result


def _by_low(a: Interval, b: Interval) -> int:
    return _order(a.low, b.low) or int(b.closed_low) - int(a.closed_low)


def _empty(part: Interval) -> bool:
    between = _order(part.low, part.high)
    return between > 0 or (between == 0 and not (part.closed_low and part.closed_high))


def _point(value: Tree) -> Interval:
    if value[0] not in EXPRESSIONS:
        raise Unknown
    if has_variable(value) or order(value, _ZERO) is None:  # only real numbers are points
        raise Unknown
    return Interval(value, True, value, True)


def _read(tree: Tree) -> RealSet:
    kind = tree[0]
    if tree in (REALS, ("text", "all real numbers"), ("text", "all reals"), ("text", "real numbers")):
        return RealSet("", _ALL)
    if kind == "rel":
        return _relation(tree)
    if kind == "builder":
        inner = _joined(tree[2], "and")
        if tree[1] != ("v", inner.name):
            raise Unknown
        return RealSet("", inner.parts)
    if kind == "sets":
        sign, items = tree[1], [_read(item).parts for item in tree[2]]
        parts = items[0]
        for other in items[1:]:
            if sign == "cup":
                parts = union([*parts, *other])
            else:
                parts = intersection(parts, other if sign == "cap" else complement(other))
        return RealSet("", parts)
    if kind == "seq":
        _, opening, closing, items = tree
        if opening == "\\{":
            return RealSet("", union([_point(item) for item in items]))
        if opening in ("(", "[") and len(items) == 2 and all(item[0] in EXPRESSIONS for item in items):
            low, high = items
            ends = (opening == "[" and low != _BELOW, closing == "]" and high != _INFINITY)
            if (opening == "[") != ends[0] or (closing == "]") != ends[1]:
                raise Unknown  # [1, infinity]
            return RealSet("", union([Interval(low, ends[0], high, ends[1])]))
        if opening in ("and", "or"):
            return _joined(items, opening)
        if opening == "" and all(_excludes(item) for item in items):
            return _joined(items, "and")
    raise Unknown


def _excludes(tree: Tree) -> bool:
    return tree[0] == "rel" and tree[2] in (["!="], ["in"])


def _joined(items: Sequence[Tree], link: str) -> RealSet:
    sets = [_read(item) for item in items]
    names = {part.name for part in sets}
    if len(names) != 1 or names == {""}:
        raise Unknown
    parts = sets[0].parts
    for other in sets[1:]:
        parts = union([*parts, *other.parts]) if link == "or" else intersection(parts, other.parts)
    return RealSet(names.pop(), parts)


def _relation(tree: Tree) -> RealSet:
    _, operands, signs = tree
    if signs in (["in"], ["notin"]) and operands[0][0] == "v":
        inner = _read(operands[1])
        if inner.name or operands[1][0] in ("rel", "text"):
            raise Unknown
        parts = inner.parts if signs == ["in"] else complement(inner.parts)
        return RealSet(operands[0][1], parts)
    chain, signs = list(operands), list(signs)
    if any(sign in (">", ">=") for sign in signs):
        chain, signs = chain[::-1], [FLIPPED.get(sign, sign) for sign in signs[::-1]]
    if len(signs) == 1 and signs[0] in ("<", "<=", "=", "!="):
        left, right = chain
        if left[:2] == ("f", "abs") and signs[0] in ("<", "<="):  # |x - 1| < 2
            return _around(left[2], right, signs[0] == "<=")
        if right[:2] == ("f", "abs") and signs[0] in ("<", "<="):  # 2 < |x - 1|
            within = _around(right[2], left, signs[0] == "<")
            return RealSet(within.name, complement(within.parts))
        if left[0] == "v" and signs[0] in ("=", "!="):
            point = [_point(right)]
            return RealSet(left[1], point if signs[0] == "=" else complement(point))
        elif left[0] == "v" and left != _INFINITY:
            chain, signs = [_BELOW, *chain], ["<", *signs]
        else:
            chain, signs = [*chain, _INFINITY], [*signs, "<"]
    if len(signs) != 2 or not set(signs) <= {"<", "<="} or chain[1][0] != "v":
        raise Unknown
    if any(end[0] not in EXPRESSIONS for end in chain):
        raise Unknown
    low, middle, high = chain
    return RealSet(middle[1], union([Interval(low, signs[0] == "<=", high, signs[1] == "<=")]))


def _around(inner: Tree, radius: Tree, closed: bool) -> RealSet:
    """Return the numbers whose distance from a center is at most, or less than, a radius."""
    center = _ZERO
    if inner[0] == "+" and inner[1][0] == "v":
        inner, center = inner[1], ("-", inner[2])
    if inner[0] != "v" or has_variable(center) or radius[0] not in EXPRESSIONS:
        raise Unknown
    low, high = ("+", center, ("-", radius)), ("+", center, radius)
    return RealSet(inner[1], union([Interval(low, closed, high, closed)]))
