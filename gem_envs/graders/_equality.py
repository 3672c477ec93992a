"""Compares two expressions: exactly for rational numbers, otherwise with as many digits as needed.

Two expressions are equal if they agree at all tested values of their variables: at two fixed points with
positive values and, if signs could matter, at a point with mixed signs and a point with only negative values.
Constants have one value. Values that are not rational are `balls.Ball`; two that no digit tells apart are
equal if there are 60 digits more than the numbers of both texts span.
"""

from __future__ import annotations

from decimal import localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

from gem_envs.graders import _balls
from gem_envs.graders._evaluation import (
    WHOLE_POINTS,
    WIDE_POINTS,
    Number,
    Opaque,
    certain,
    digits_needed,
    evaluate,
    same_number,
    to_ball,
)
from gem_envs.graders._trees import CONSTANTS, EXPRESSIONS, Tree, children, names, rebuilt

_ROUNDED = 6
"""Minimum number of significant digits for a decimal to match the number that it rounds."""
_MOST_DIGITS = 2000
"""Two values that agree to this many digits and could differ beyond them remain undecided."""


def same_expressions(answer: Tree, reference: Tree) -> bool | None:
    """Return whether two expressions are equal; None if this module cannot tell."""
    if answer == reference:
        return True
    if answer[0] == reference[0] == "v":
        return bool(answer[1] == reference[1])
    if (sign := _infinite(answer)) or _infinite(reference):
        return sign == _infinite(reference)
    try:
        return _same_values(answer, reference)
    except Opaque:
        table: list[Tree] = []
        answer, reference = _abstracted(answer, table), _abstracted(reference, table)
    try:
        return _same_values(answer, reference) or None  # a different form may have the same value
    except Opaque:
        return None


_cached = lru_cache(maxsize=4096)(evaluate)


def _known(reference: Tree, point: int) -> Number | None:
    """Return a value of the reference, which the answers of a group share."""
    try:
        return _cached(reference, point)
    except TypeError:  # a list within P(X = 2) has no hash
        return evaluate(reference, point)


def _same_values(answer: Tree, reference: Tree) -> bool | None:
    if not has_variable(answer) and not has_variable(reference):
        return _same_constants(answer, reference)
    if _steps(answer) or _steps(reference):
        return _same_steps(answer, reference)
    settled = valued = 0
    for point in range(4):
        a, b = evaluate(answer, point), _known(reference, point)
        valued += b is not None
        if a is None or b is None:
            continue
        if same_number(a, b) is False:  # a difference at mixed signs only may come from branch cuts
            if _takes_whole_numbers(answer) or _takes_whole_numbers(reference):
                return _same_for_whole_numbers(answer, reference)
            return False if point < 2 and not (_doubtful(answer) or _doubtful(reference)) else None
        settled += 1
        if settled == 1 and not (isinstance(a, Fraction) and isinstance(b, Fraction)):
            equal = _same_at(answer, reference, point)
            if not equal:
                return equal
        if point == 1 and settled == 2 and not (_branching(answer) or _branching(reference)):
            return True
    if not settled and (_takes_whole_numbers(answer) or _takes_whole_numbers(reference)):
        return _same_for_whole_numbers(answer, reference)
    if valued and not settled and not has_variable(answer):  # 1/0, or a number too large to be the reference
        return False
    return True if settled == 4 else None


def _same_steps(answer: Tree, reference: Tree) -> bool | None:
    """Compare functions with jumps at many points, since few points may lie between the same jumps."""
    pairs = [(evaluate(answer, point), evaluate(reference, point)) for point in WIDE_POINTS]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if any(same_number(a, b) is False for a, b in known):
        return False
    return True if len(known) == len(pairs) and all(same_number(a, b) for a, b in known) else None


def _same_constants(answer: Tree, reference: Tree) -> bool | None:
    a, b = evaluate(answer, 0), _known(reference, 0)
    if a is None or b is None:
        again = 120
        a, b = evaluate(answer, 0, again), evaluate(reference, 0, again)
        if b is not None and a is None and not _doubtful(reference):
            return False
        if a is None or b is None:
            return None
        same = same_number(a, b, again)
    else:
        same = same_number(a, b)
    if same is False:
        doubtful = _doubtful(answer) or _doubtful(reference)
        return _rounds(answer, reference) or (None if doubtful else False)
    if same:
        return True
    return _rounds(answer, reference) or _same_at(answer, reference, 0)


def _same_at(answer: Tree, reference: Tree, point: int) -> bool | None:
    """Compare the values at a point with as many digits as the numbers of both texts span."""
    digits = 60 + digits_needed(answer) + digits_needed(reference)
    if digits > _MOST_DIGITS:
        return None
    for more in (digits, 2 * digits):
        a, b = evaluate(answer, point, more), evaluate(reference, point, more)
        if a is None or b is None:
            return None
        same = same_number(a, b, more)
        if same is not None:
            return same
        if certain(a, b, more):
            return True
    return None


def order(a: Tree, b: Tree) -> int | None:
    """Return -1, 0, or 1 for a < b, a = b, or a > b; None if this module cannot tell."""
    left, right = _infinite(a), _infinite(b)
    if left or right:
        return (left > right) - (left < right)
    if has_variable(a) or has_variable(b):
        return 0 if same_expressions(a, b) else None
    equal = same_expressions(a, b)
    if equal is not False:
        return 0 if equal else None
    try:
        for digits in (30, 60 + digits_needed(a) + digits_needed(b)):
            x, y = evaluate(a, 0, digits), evaluate(b, 0, digits)
            if x is None or y is None:
                return None
            with localcontext() as context:
                context.prec = digits
                difference = _balls.add(to_ball(x), _balls.negative(to_ball(y)))
                if difference.im:
                    return None
                if _balls.lower_bound(difference):
                    return 1 if difference.re > 0 else -1
    except Opaque:
        return None
    return None


def _infinite(tree: Tree) -> int:
    """Return 1 for infinity, -1 for minus infinity, 0 for everything else."""
    if tree[0] == "-":
        return -_infinite(tree[1])
    return int(tree == ("v", "infty"))


# -- decimals that round another number -------------------------------------------------------


def _rounds(answer: Tree, reference: Tree) -> bool:
    """Return whether one is a decimal, and it is the other, correctly rounded to its digits.

    The other is no decimal, and the decimal has at least six significant digits. A reference that the data
    set declares as rounded (`marked_as_rounded`) may have fewer, and the answer may be a decimal.
    """
    for decimal, exact, declared in ((answer, reference, False), (reference, answer, True)):
        literal = decimal[1] if decimal[0] == "-" else decimal
        if literal[0] != "n" or literal[2] is None:
            continue
        declared = declared and len(literal) > 3
        opposite = exact[1] if exact[0] == "-" else exact
        digits = len(str(int(literal[1] * 10 ** literal[2])))
        if not declared and (opposite[0] == "n" or digits < _ROUNDED):
            continue
        if _within(decimal, exact, Fraction(1, 2 * 10 ** literal[2])):
            return True
    return False


def _within(decimal: Tree, exact: Tree, half: Fraction) -> bool:
    """Return whether two constants differ by at most `half`, for certain."""
    precision = 40 + digits_needed(decimal) + digits_needed(exact)
    if precision > _MOST_DIGITS:
        return False
    a, b = evaluate(decimal, 0, precision), evaluate(exact, 0, precision)
    if a is None or b is None:
        return False
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return abs(a - b) <= half
    with localcontext() as context:
        context.prec = precision
        difference = _balls.add(to_ball(a), _balls.negative(to_ball(b)))
        reach = _balls.size(difference) + difference.rad
        return reach <= _balls.ball(half).re


def marked_as_rounded(tree: Tree) -> Tree:
    """Return a reference whose decimals are marked as rounded, for `_rounds`."""
    if tree[0] == "n":
        return (*tree, "rounded")
    return tuple(_marked(part) for part in tree)


def _marked(part: object) -> object:
    if isinstance(part, tuple) and part and isinstance(part[0], str):
        return marked_as_rounded(part)
    if isinstance(part, list | tuple):
        return type(part)(_marked(item) for item in part)
    return part


# -- properties of expressions ----------------------------------------------------------------


def has_variable(tree: Tree) -> bool:
    """Return whether an expression depends on a variable."""
    kind = tree[0]
    if kind == "v":
        return tree[1] not in CONSTANTS
    if kind == "n":
        return False
    if kind == "o" and tree[1] in ("sum", "prod", "int", "lim"):
        return bool(names(tree))
    return any(map(has_variable, children(tree)))


_WHOLE = frozenset("nkmN")
"""Variables that usually stand for whole numbers."""


def _takes_whole_numbers(tree: Tree) -> bool:
    r"""Return whether an expression treats a variable as a whole number: ``n!``, ``(-1)^n``."""
    kind = tree[0]
    if kind == "f" and tree[1] in ("!", "!!", "binom"):
        return bool(names(tree))
    if kind == "f" and tree[1] in ("floor", "ceil", "cos", "sin"):
        return names(tree[2]) <= _WHOLE and bool(names(tree[2]))
    if kind == "^" and names(tree[2]) and names(tree[2]) <= _WHOLE and not has_variable(tree[1]):
        base = evaluate(tree[1], 0)
        return not isinstance(base, Fraction) or base < 0
    return any(map(_takes_whole_numbers, children(tree)))


def _same_for_whole_numbers(answer: Tree, reference: Tree) -> bool | None:
    """Return whether two expressions agree for whole values of all variables."""
    whole = _WHOLE | _factorial_names(answer) | _factorial_names(reference)
    if not names(answer) | names(reference) <= whole:
        return None
    pairs = [(evaluate(answer, point), evaluate(reference, point)) for point in WHOLE_POINTS]
    if any(a is not None and b is not None and same_number(a, b) is False for a, b in pairs):
        return False
    return None if any(a is None or b is None for a, b in pairs) else True


def _steps(tree: Tree) -> bool:
    return (tree[0] == "f" and tree[1] in ("floor", "ceil")) or any(map(_steps, children(tree)))


def _factorial_names(tree: Tree) -> set[str]:
    """Return the variables within factorials and binomial coefficients."""
    if tree[0] == "f" and tree[1] in ("!", "!!", "binom"):
        return names(tree)
    return set().union(*map(_factorial_names, children(tree)))


_BRANCHES = frozenset(["sqrt", "abs", "log", "ln", "asin", "acos", "atan", "arcsin", "arccos", "arctan"])


def _branching(tree: Tree) -> bool:
    """Return whether signs could matter: roots, logarithms, absolute values, fractional powers."""
    if tree[0] == "^" and not (tree[2][0] == "n" and tree[2][1].denominator == 1):
        return True
    return (tree[0] == "f" and tree[1] in _BRANCHES) or any(map(_branching, children(tree)))


def _doubtful(tree: Tree) -> bool:
    """Return whether the text may mean another function: log without a base is ambiguous."""
    return (tree[0] == "f" and tree[1] == "log" and tree[3] is None) or any(map(_doubtful, children(tree)))


# -- operators without a known value ----------------------------------------------------------


def _abstracted(tree: Tree, table: list[Tree]) -> Tree:
    """Return the tree with a variable for each operator; equal operators share one."""
    if tree[0] != "o":
        return rebuilt(tree, tuple(_abstracted(part, table) for part in children(tree)))
    for index, other in enumerate(table):
        if _same_parts(tree, other):
            return ("v", f"operator {index}")
    table.append(tree)
    return ("v", f"operator {len(table) - 1}")


def _same_parts(a: Any, b: Any) -> bool:
    """Return whether two operators have the same name and equal parts."""
    if not isinstance(a, list | tuple) or not isinstance(b, list | tuple):
        return bool(a == b)
    kinds = [part[0] if part and isinstance(part[0], str) else "" for part in (a, b)]
    if EXPRESSIONS.issuperset(kinds) and kinds != ["o", "o"]:
        return bool(same_expressions(tuple(a), tuple(b)))
    return len(a) == len(b) and all(map(_same_parts, a, b))
