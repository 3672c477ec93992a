"""Compares the trees of `gem_core.graders.latex`: exactly for rational numbers, otherwise numerically.

Two expressions are equal if they agree at all tested values of their variables: at two fixed points with
positive values and, if signs could matter, at a point with mixed signs and a point with only negative values.
`same` returns None if the comparison is inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd

from gem_core.graders.evaluation import WHOLE_POINTS, Number, evaluate
from gem_core.graders.expressions import EXPRESSIONS, Tree
from gem_core.graders.units import UNITS, measure

_TOLERANCE = 1e-9
_ROUNDED = 6
"""Minimum number of significant digits for a decimal to match the number that it rounds."""
_NOTHING = frozenset(
    ("no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set")
)
_NO_UNIT = frozenset(("is", "not", "than", "maybe", "perhaps", "wrong", "incorrect", "false"))
"""Words that turn the text after a number into a statement about the number."""
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def same(answer: Tree, reference: Tree) -> bool | None:
    """Return whether two answers mean the same; None if this module cannot tell."""
    for tree in (answer, reference):
        if tree[0] == "rel" and not _consistent(tree):
            return False
    answer, reference = _bare(answer, reference), _bare(reference, answer)
    kinds = answer[0], reference[0]
    if "unit" in kinds:
        return _same_units(answer, reference)
    if kinds[0] in EXPRESSIONS and kinds[1] in EXPRESSIONS:
        return _same_expressions(answer, reference)
    if kinds == ("text", "text"):
        return bool(answer[1] == reference[1])
    if kinds == ("rel", "rel"):
        return _same_relations(answer, reference)
    if "union" in kinds:
        return _same_unions(answer, reference)
    if "rel" in kinds:
        if any(tree[0] == "rel" and "!=" in tree[2] for tree in (answer, reference)):
            return False
        answer, reference = (_interval(tree) or tree for tree in (answer, reference))
        return None if "rel" in (answer[0], reference[0]) else same(answer, reference)
    if kinds == ("matrix", "matrix"):
        return _same_matrices(answer[1], reference[1])
    if "matrix" in kinds:
        return None
    if kinds == ("seq", "seq"):
        return _same_sequences(answer, reference)
    if "seq" in kinds and (ratio := _ratio(answer if kinds[0] == "seq" else reference)):
        return same(*((ratio, reference) if kinds[0] == "seq" else (answer, ratio)))
    if "seq" in kinds:  # one value against several
        single, several = (answer, reference) if kinds[1] == "seq" else (reference, answer)
        if several[1] in ("", "\\{"):
            return _unordered([single], several[3])
        return _reals(single, several)
    return False  # words against a number


def _bare(tree: Tree, other: Tree) -> Tree:
    """Remove a leading name (x = 5) that the other side lacks, and replace words by a letter."""
    if tree[0] == "rel" and set(tree[2]) == {"="} and other[0] != "rel":
        constant = tree[1][0][0] in EXPRESSIONS and not _has_variable(tree[1][0])
        if tree[1][0][0] in ("v", "*", "text") or len(tree[2]) > 1 or constant:  # x, f(x), Area, or 3 + 4
            return tuple(tree[1][-1])
        if tree[1][-1][0] == "v":
            return tuple(tree[1][0])
    if tree[0] == "text" and other[0] == "v" and len(tree[1].strip("() .")) == 1:
        return ("v", tree[1].strip("() ."))
    if tree[0] == "text" and tree[1] in ("all real numbers", "all reals", "real numbers"):
        return ("v", "blackboard R")
    if tree[0] == "text" and tree[1].strip(" .") in _NOTHING:
        return ("seq", "\\{", "\\}", [])
    return tree


def _ratio(tree: Tree) -> Tree | None:
    """Return a ratio of whole numbers in lowest terms as a fraction; 10:30 may be a time."""
    if tree[1] != ":" or len(tree[3]) != 2 or any(part[0] != "n" for part in tree[3]):
        return None
    left, right = (part[1] for part in tree[3])
    lowest = left.denominator == right.denominator == gcd(int(left), int(right)) == 1
    return ("/", *tree[3]) if right and lowest else None


def _consistent(relation: Tree) -> bool:
    """Return whether the constants in a chain of equations are equal; ``x = 73 = 72`` is wrong for any x."""
    _, operands, signs = relation
    constants = [side for side in operands if side[0] in EXPRESSIONS and not _has_variable(side)]
    if set(signs) != {"="} or len(constants) < 2:
        return True
    return all(_same_expressions(side, constants[-1]) is not False for side in constants[:-1])


def _has_variable(tree: Tree) -> bool:
    if tree[0] == "v":
        return tree[1] not in ("pi", "e", "i", "infty")
    return any(_has_variable(part) for part in tree[1:] if isinstance(part, tuple))


def _same_unions(answer: Tree, reference: Tree) -> bool | None:
    """Compare unions of intervals or sets; an inequality counts as its interval."""
    answer_parts, reference_parts = (
        [_interval(part) or part for part in (tree[1] if tree[0] == "union" else [tree])]
        for tree in (_without_point(answer), _without_point(reference))
    )
    if all(part[0] == "seq" and part[1] == "\\{" for part in (*answer_parts, *reference_parts)):
        return _unordered(
            [item for part in answer_parts for item in part[3]],
            [item for part in reference_parts for item in part[3]],
        )
    return _unordered(answer_parts, reference_parts) or None  # (1,2] and (2,3] may be joined differently


def _without_point(tree: Tree) -> Tree:
    r"""Return ``x \ne 2`` as the union of two intervals; other trees are returned as they are."""
    if (
        tree[0] != "rel"
        or list(tree[2]) != ["!="]
        or tree[1][0][0] != "v"
        or tree[1][1][0] not in EXPRESSIONS
    ):
        return tree
    point = tree[1][1]
    below = ("seq", "(", ")", [("-", ("v", "infty")), point])
    return ("union", [below, ("seq", "(", ")", [point, ("v", "infty")])])


def _same_units(answer: Tree, reference: Tree) -> bool | None:
    """Return whether the units agree: one is ignored, two must be equal or convertible."""
    (left, unit), (right, other) = (
        (tree[1], tree[2]) if tree[0] == "unit" else (tree, "") for tree in (answer, reference)
    )
    if not _NO_UNIT.isdisjoint(unit.split()):
        return False
    if left[0] not in EXPRESSIONS or right[0] not in EXPRESSIONS:
        return False if "text" in (left[0], right[0]) else None
    equal = _same_expressions(left, right)
    if "%" in (unit, other) and unit != other:
        if "" not in (unit, other):
            return False
        hundredth = ("/", left if unit else right, ("n", Fraction(100), None))
        return equal or _same_expressions(hundredth, right if unit else left)
    names = _unit(unit), _unit(other)
    if not unit or not other or names[0] == names[1]:
        return equal
    meaning, other_meaning = measure(unit), measure(other)
    if meaning is not None and other_meaning is not None:
        if not meaning.dimensions or not other_meaning.dimensions:  # square units
            return equal
        if meaning.dimensions != other_meaning.dimensions:
            return False
        scale = meaning.size / other_meaning.size
        return _same_expressions(("*", ("n", scale, None), left) if scale != 1 else left, right)
    if "degree" in names and all(name.startswith("degree ") or name == "degree" for name in names):
        return equal  # one side does not name its scale
    return False if equal is not None else None


def _unit(unit: str) -> str:
    if unit in UNITS:
        return repr(UNITS[unit])
    words = [word.strip(".") for word in unit.split()]
    return " ".join(
        repr(UNITS[w]) if w in UNITS else w[:-1] if len(w) > 3 and w.endswith("s") else w for w in words
    )


def _same_sequences(answer: Tree, reference: Tree) -> bool | None:
    (_, start, end, items), (_, other_start, other_end, others) = answer, reference
    loose = ("", "\\{")
    if start in loose and other_start in loose:
        return _unordered(items, others)
    bare = "" in (start, other_start)
    if not bare and (start, end) != (other_start, other_end):
        return False
    return _all(_by_name(items), _by_name(others))


def _by_name(items: Sequence[Tree]) -> Sequence[Tree]:
    """Return ``y=2, x=1`` in the order of the names, like coordinates; other items as they are."""
    if any(item[0] != "rel" or list(item[2]) != ["="] or item[1][0][0] != "v" for item in items):
        return items
    names = [item[1][0][1] for item in items]
    return items if len(set(names)) < len(names) else sorted(items, key=lambda item: str(item[1][0][1]))


def _all(items: Sequence[Tree], others: Sequence[Tree]) -> bool | None:
    if len(items) != len(others):
        return False
    verdicts = [same(a, b) for a, b in zip(items, others, strict=True)]
    return False if False in verdicts else None if None in verdicts else True


def _unordered(items: Sequence[Tree], others: Sequence[Tree]) -> bool | None:
    """Return whether each element of one is in the other; repetitions do not count."""
    if len(items) * len(others) > 400:
        return None
    table = [[same(a, b) for b in others] for a in items]
    lines = [*table, *zip(*table, strict=True)] if table and others else [[]] * (len(items) + len(others))
    if all(True in line for line in lines):
        return True
    return None if any(True not in line and None in line for line in lines) else False


def _same_matrices(rows: Sequence[Sequence[Tree]], others: Sequence[Sequence[Tree]]) -> bool | None:
    if [len(row) for row in rows] != [len(row) for row in others]:
        return False
    return _all([x for row in rows for x in row], [x for row in others for x in row])


def _reals(single: Tree, interval: Tree) -> bool | None:
    if single == ("v", "blackboard R"):
        everything = [("-", ("v", "infty")), ("v", "infty")]
        return bool(interval[1:3] == ("(", ")") and interval[3] == everything)
    return False


def _interval(relation: Tree) -> Tree | None:
    """Return ``1 < x <= 2`` as an interval."""
    if relation[0] != "rel":
        return None
    _, operands, signs = relation
    operands, signs = list(operands), list(signs)
    if signs and signs[0] in (">", ">="):
        operands, signs = operands[::-1], [_FLIPPED.get(sign, sign) for sign in signs[::-1]]
    if any(sign not in ("<", "<=") for sign in signs):
        return None
    if len(signs) == 1 and operands[0][0] == "v" != operands[1][0]:
        operands, signs = [("-", ("v", "infty")), *operands], ["<", *signs]
    elif len(signs) == 1 and operands[1][0] == "v":
        operands, signs = [*operands, ("v", "infty")], [*signs, "<"]
    if len(signs) != 2 or operands[1][0] != "v":
        return None
    start, end = "(" if signs[0] == "<" else "[", ")" if signs[1] == "<" else "]"
    return ("seq", start, end, [operands[0], operands[2]])


def _same_relations(answer: Tree, reference: Tree) -> bool | None:
    (_, left, signs), (_, right, others) = answer, reference
    if len(signs) != 1 or len(others) != 1 or "=" not in (signs[0], others[0]):
        a, b = _interval(answer), _interval(reference)
        return same(a, b) if a and b else None
    if signs != others:
        return False
    if _all(left, right) or _all(left, right[::-1]):
        return True
    sides = [*left, *right]
    if any(side[0] not in EXPRESSIONS for side in sides):
        return None
    ratios = []
    for point in range(3):  # the same curve: one is a multiple of the other
        values = [evaluate(side, point) for side in sides]
        if any(value is None for value in values):
            return None
        try:
            p, q, r, t = (complex(value) for value in values if value is not None)
        except OverflowError:  # a fraction beyond all floats
            return None
        if abs(r - t) < _TOLERANCE or abs(p - q) < _TOLERANCE:
            return None
        ratios.append((p - q) / (r - t))
    return True if all(_close(ratio, ratios[0]) for ratio in ratios) else None


# -- expressions ------------------------------------------------------------------------------


def _same_expressions(answer: Tree, reference: Tree) -> bool | None:
    if answer == reference:
        return True
    if answer[0] == reference[0] == "v":
        return bool(answer[1] == reference[1])
    if (sign := _infinite(answer)) or _infinite(reference):
        return sign == _infinite(reference)
    settled = valued = 0
    for point in range(4):
        a, b = evaluate(answer, point), evaluate(reference, point)
        valued += b is not None
        if a is None or b is None:
            continue
        if not _equal(answer, reference, a, b):  # a difference at mixed signs only may come from branch cuts
            if _of_whole_numbers(answer) or _of_whole_numbers(reference):
                return _same_for_whole_numbers(answer, reference)
            return False if point < 2 and not (_doubtful(answer) or _doubtful(reference)) else None
        settled += 1
        if point == 1 and not (_branching(answer) or _branching(reference)):
            return True
    if valued and not settled and not _has_variable(answer):  # 1/0, or a number too large to be the reference
        return False
    return True if settled == 4 else None


def _equal(answer: Tree, reference: Tree, a: Number, b: Number) -> bool:
    """Return whether two trees with the values `a` and `b` at a point are equal there."""
    try:
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a == b or _rounds(answer, reference, a, b)
        return _close(complex(a), complex(b)) or _rounds(answer, reference, a, b)
    except OverflowError:  # a fraction beyond all floats against a value within them
        return False


def _infinite(tree: Tree) -> int:
    """Return 1 for infinity, -1 for minus infinity, 0 for everything else."""
    if tree[0] == "-":
        return -_infinite(tree[1])
    return int(tree == ("v", "infty"))


def _close(a: complex, b: complex) -> bool:
    return abs(a - b) <= _TOLERANCE * max(1.0, abs(a), abs(b)) and (abs(b) > _TOLERANCE or abs(a - b) < 1e-12)


def _rounds(answer: Tree, reference: Tree, a: Number, b: Number) -> bool:
    """Return whether one is a decimal and equals the other, a non-decimal, rounded to at least six digits."""
    for tree, value, other, exact in ((answer, a, b, reference), (reference, b, a, answer)):
        literal = tree[1] if tree[0] == "-" else tree
        if literal[0] != "n" or literal[2] is None or not isinstance(value, Fraction):
            continue
        opposite = exact[1] if exact[0] == "-" else exact
        digits = len(str(int(abs(value) * 10 ** literal[2])))
        if opposite[0] == "n" or digits < _ROUNDED or abs(complex(other).imag) > _TOLERANCE:
            continue
        distance = abs(float(value) - complex(other).real)
        return bool(distance <= 0.5 * 10.0 ** -literal[2] * (1 + 1e-6))
    return False


_WHOLE = frozenset("nkmN")
"""Variables that usually stand for whole numbers."""


def _of_whole_numbers(tree: Tree) -> bool:
    r"""Return whether an expression treats a variable as a whole number: ``n!``, ``(-1)^n``."""
    kind = tree[0]
    if kind == "f" and tree[1] in ("!", "binom", "floor", "ceil", "cos", "sin"):
        return _names(tree[2]) <= _WHOLE and bool(_names(tree[2]))
    if kind == "^" and _names(tree[2]) and _names(tree[2]) <= _WHOLE and not _has_variable(tree[1]):
        base = evaluate(tree[1], 0)
        return not isinstance(base, Fraction) or base < 0
    return any(_of_whole_numbers(part) for part in tree[1:] if isinstance(part, tuple))


def _names(tree: Tree) -> set[str]:
    if tree[0] == "v":
        return {tree[1]} - {"pi", "e", "i"}
    return set().union(*(_names(part) for part in tree[1:] if isinstance(part, tuple)))


def _same_for_whole_numbers(answer: Tree, reference: Tree) -> bool | None:
    """Return whether two expressions agree for whole values of all variables."""
    if not _names(answer) | _names(reference) <= _WHOLE:
        return None
    pairs = [(evaluate(answer, point), evaluate(reference, point)) for point in WHOLE_POINTS]
    if any(a is not None and b is not None and not _equal(answer, reference, a, b) for a, b in pairs):
        return False
    return None if any(a is None or b is None for a, b in pairs) else True


_BRANCHES = frozenset(["sqrt", "abs", "log", "ln", "asin", "acos", "atan", "arcsin", "arccos", "arctan"])


def _branching(tree: Tree) -> bool:
    """Return whether signs could matter: roots, logarithms, absolute values, fractional powers."""
    if tree[0] == "^" and not (tree[2][0] == "n" and tree[2][1].denominator == 1):
        return True
    return (tree[0] == "f" and tree[1] in _BRANCHES) or any(
        _branching(part) for part in tree[1:] if isinstance(part, tuple)
    )


def _doubtful(tree: Tree) -> bool:
    """Return whether the text may mean another function: log without a base is ambiguous."""
    return (tree[0] == "f" and tree[1] == "log" and tree[3] is None) or any(
        _doubtful(part) for part in tree[1:] if isinstance(part, tuple)
    )
