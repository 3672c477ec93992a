"""Compares the trees of `gem_envs.graders._latex`; `same` returns None if the comparison is inconclusive."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from gem_envs.graders._equality import has_variable, same_expressions
from gem_envs.graders._quantities import same_units
from gem_envs.graders._sets import RealSet, real_set, same_sets
from gem_envs.graders._statements import (
    all_same,
    consistent,
    matched,
    parameters,
    same_cases,
    same_congruences,
    same_given,
    same_relations,
    strictly,
)
from gem_envs.graders._trees import EXPRESSIONS, Tree, renamed

_NOTHING = frozenset(
    ("no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set")
)
_LISTS = ("", "and", "or")
_STATEMENTS = frozenset(("rel", "mod", "cases", "given", "builder", "sets"))


def same(answer: Tree, reference: Tree) -> bool | None:
    """Return whether two answers mean the same; None if this module cannot tell."""
    for tree in (answer, reference):
        if tree[0] == "rel" and not consistent(tree):
            return False
    answer, reference = _bare(answer, reference), _bare(reference, answer)
    kinds = answer[0], reference[0]
    if kinds[0] in EXPRESSIONS and kinds[1] in EXPRESSIONS:
        return same_expressions(answer, reference)
    if "unit" in kinds:
        return same_units(answer, reference)
    if kinds == ("text", "text"):
        return bool(answer[1] == reference[1])
    if not _STATEMENTS.isdisjoint(kinds) or _reals(answer, reference):
        return _same_statements(answer, reference)
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
        if several[1] in (*_LISTS, "\\{"):
            return _unordered([single], several[3])
        return False
    return None  # words against a number, such as six


def _same_statements(answer: Tree, reference: Tree) -> bool | None:
    kinds = answer[0], reference[0]
    if kinds == ("rel", "rel"):
        return same_relations(answer, reference, same)
    if kinds == ("mod", "mod"):
        return same_congruences(answer, reference)
    if kinds == ("cases", "cases"):
        return same_cases(answer, reference, same)
    if kinds == ("given", "given"):
        return same_given(answer, reference, same)
    sets = real_set(answer), real_set(reference)
    if sets[0] is not None and sets[1] is not None:
        return _same_real_sets(answer, reference, sets[0], sets[1])
    if kinds == ("builder", "builder"):
        return _same_builders(answer, reference)
    if kinds == ("sets", "sets") and answer[1] == reference[1]:
        compare = all_same if answer[1] == "setminus" else matched
        return compare(answer[2], reference[2], same) or None
    if kinds == ("sets", "seq") or kinds == ("seq", "sets"):
        return _same_united(answer, reference)
    if "given" in kinds or "cases" in kinds or "mod" in kinds:
        return None
    return False if "rel" in kinds and "seq" not in kinds else None


def _same_real_sets(answer: Tree, reference: Tree, a: RealSet, b: RealSet) -> bool | None:
    """Compare sets of real numbers; a single value is no set, and 1 < x < y has no interval."""
    if "seq" in (answer[0], reference[0]):
        listed = answer if answer[0] == "seq" else reference
        if listed[1] in ("", "and"):
            return same_sets(a, b) or None
    return same_sets(a, b)


def _same_builders(answer: Tree, reference: Tree) -> bool | None:
    if answer[1][0] != "v" and reference[1][0] != "v" and same_given(answer, reference, same):
        return True
    element, conditions = _with_bound_names(answer)
    other, others = _with_bound_names(reference)
    verdicts = [strictly(element, other, same), matched(conditions, others, same)]
    return True if all(verdicts) else None


def _with_bound_names(builder: Tree) -> tuple[Tree, list[Tree]]:
    """Return the element and the conditions of a set with other names for its variables."""
    _, element, conditions = builder
    names = [element[1]] if element[0] == "v" else [name for name, _ in parameters(conditions)[0]]
    for index, name in enumerate(names):
        fresh = ("v", f"element {index}")
        element = renamed(element, name, fresh)
        conditions = [renamed(condition, name, fresh) for condition in conditions]
    return element, conditions


def _same_united(answer: Tree, reference: Tree) -> bool | None:
    r"""Compare ``\\{1\\} \\cup \\{2\\}`` with a list."""
    lists = [_elements(tree) for tree in (answer, reference)]
    return None if lists[0] is None or lists[1] is None else _unordered(lists[0], lists[1])


def _elements(tree: Tree) -> list[Tree] | None:
    if tree[0] == "seq":
        return tree[3] if tree[1] in (*_LISTS, "\\{") else None
    if tree[1] != "cup" or any(part[0] != "seq" or part[1] != "\\{" for part in tree[2]):
        return None
    return [item for part in tree[2] for item in part[3]]


def _reals(answer: Tree, reference: Tree) -> bool:
    """Return whether a list is a set of numbers: inequalities, or an interval against the line of reals."""
    trees = answer, reference
    if all(tree[0] == "seq" for tree in trees) and any(
        tree[1] in _LISTS and tree[3][0][0] == "rel" and "=" not in tree[3][0][2] for tree in trees
    ):
        return not all(tree[1] in _LISTS for tree in trees) or answer[1] != reference[1]
    return any(tree == ("v", "blackboard R") for tree in trees) and any(tree[0] == "seq" for tree in trees)


def _bare(tree: Tree, other: Tree) -> Tree:
    """Remove a leading name (x = 5) that the other side lacks, and replace words by a letter."""
    if tree[0] == "given" and other[0] == "given":
        return tree
    if tree[0] == "rel" and set(tree[2]) == {"="} and other[0] not in ("rel", "given"):
        first, last = tree[1][0], tree[1][-1]
        constant = first[0] in EXPRESSIONS and not has_variable(first)
        if _is_name(first) or len(tree[2]) > 1 or constant:  # x, f(x), Area, or 3 + 4
            return tuple(last)
        if last[0] == "v":
            return tuple(first)
    if (
        tree[0] == "rel"
        and tree[2] == ["in"]
        and other[0] not in ("rel", "given")
        and tree[1][0][0] in ("v", "seq")
    ):
        return tuple(tree[1][1])
    if tree[0] == "text" and other[0] == "v" and len(tree[1].strip("() .")) == 1:
        return ("v", tree[1].strip("() ."))
    if tree[0] == "text" and tree[1] in ("all real numbers", "all reals", "real numbers"):
        return ("v", "blackboard R")
    if tree[0] == "text" and tree[1].strip(" .") in _NOTHING:
        return ("seq", "\\{", "\\}", [])
    return tree


def _is_name(tree: Tree) -> bool:
    """Return whether the left side of an equation names its right side: x, AB, f(x), Area, (x, y)."""
    if tree[0] in ("v", "text") or tree[:2] == ("o", "call"):
        return True
    if tree[0] == "seq":
        return tree[1] == "(" and all(item[0] == "v" for item in tree[3])
    return tree[0] == "*" and _is_name(tree[1]) and _is_name(tree[2])


def _ratio(tree: Tree) -> Tree | None:
    """Return a ratio of whole numbers in lowest terms as a fraction; 10:30 may be a time."""
    if tree[1] != ":" or len(tree[3]) != 2 or any(part[0] != "n" for part in tree[3]):
        return None
    left, right = (part[1] for part in tree[3])
    lowest = left.denominator == right.denominator == gcd(int(left), int(right)) == 1
    return ("/", *tree[3]) if right and lowest else None


def _same_sequences(answer: Tree, reference: Tree) -> bool | None:
    (_, start, end, items), (_, other_start, other_end, others) = answer, reference
    if {start, other_start} == {"and", "or"}:
        return False
    loose = (*_LISTS, "\\{")
    if start in loose and other_start in loose:
        if "\\{" in (start, other_start):
            return _unordered(items, others)
        return _paired(items, others)
    if "or" in (start, other_start):
        return None
    bare = start in _LISTS or other_start in _LISTS
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
    verdicts = [_same_items(a, b) for a, b in zip(items, others, strict=True)]
    return False if False in verdicts else None if None in verdicts else True


def _unordered(items: Sequence[Tree], others: Sequence[Tree]) -> bool | None:
    """Return whether each element of one is in the other; repetitions do not count."""
    if len(items) * len(others) > 400:
        return None
    table = [[_same_items(a, b) for b in others] for a in items]
    lines = [*table, *zip(*table, strict=True)] if table and others else [[]] * (len(items) + len(others))
    if all(True in line for line in lines):
        return True
    return None if any(True not in line and None in line for line in lines) else False


def _same_items(answer: Tree, reference: Tree) -> bool | None:
    """Compare elements; one that is itself a set or a point differs from a number."""
    kinds = answer[0], reference[0]
    if "seq" in kinds and not EXPRESSIONS.isdisjoint(kinds):
        return False
    return same(answer, reference)


def _paired(items: Sequence[Tree], others: Sequence[Tree]) -> bool | None:
    """Compare lists without brackets: in any order, and each value as often as in the other."""
    equal = _unordered(items, others)
    if not equal or len(items) != len(others):
        return False if equal else equal
    counts = [
        sum(same(a, b) is True for b in others) == sum(same(a, b) is True for b in items) for a in items
    ]
    return all(counts)


def _same_matrices(rows: Sequence[Sequence[Tree]], others: Sequence[Sequence[Tree]]) -> bool | None:
    if [len(row) for row in rows] != [len(row) for row in others]:
        return False
    return _all([x for row in rows for x in row], [x for row in others for x in row])
