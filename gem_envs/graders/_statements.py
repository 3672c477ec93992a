"""Compares statements: relations, congruences, cases, conditions, and families of solutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from gem_envs.graders._balls import Ball
from gem_envs.graders._equality import has_variable, same_expressions
from gem_envs.graders._evaluation import Opaque, evaluate
from gem_envs.graders._sets import FLIPPED, Interval, RealSet, complement, real_set, same_sets, union
from gem_envs.graders._trees import EXPRESSIONS, Tree, names, renamed

Compare: TypeAlias = Callable[[Tree, Tree], "bool | None"]
"""Compares two parts of answers, of any kind."""
_INTEGERS: Tree = ("v", "blackboard Z")
_MOST_ITEMS = 20


def strictly(answer: Tree, reference: Tree, compare: Compare) -> bool | None:
    """Compare two parts of a larger answer; neither may omit a name, a unit, or a condition."""
    if answer[0] in EXPRESSIONS and reference[0] in EXPRESSIONS:
        return same_expressions(answer, reference)
    if answer[0] == reference[0] == "unit" and answer[2] != reference[2]:
        return None
    if answer[0] == reference[0]:
        return compare(answer, reference)
    return _as_sets(answer, reference)


def _as_sets(answer: Tree, reference: Tree) -> bool | None:
    a, b = real_set(answer), real_set(reference)
    return same_sets(a, b) if a and b and a.name == b.name else None


def all_same(items: Sequence[Tree], others: Sequence[Tree], compare: Compare) -> bool | None:
    """Compare parts in order."""
    if len(items) != len(others):
        return False
    verdicts = [strictly(a, b, compare) for a, b in zip(items, others, strict=True)]
    return False if False in verdicts else None if None in verdicts else True


def matched(items: Sequence[Tree], others: Sequence[Tree], compare: Compare) -> bool | None:
    """Compare parts in any order; each has one partner."""
    if len(items) != len(others):
        return False
    if len(items) > _MOST_ITEMS:
        return None
    rest, unclear = list(others), False
    for item in items:
        verdicts = [strictly(item, other, compare) for other in rest]
        if True in verdicts:
            rest.pop(verdicts.index(True))
        elif None in verdicts:
            unclear = True
        else:
            return False
    return None if unclear else True


# -- relations --------------------------------------------------------------------------------


def same_relations(answer: Tree, reference: Tree, compare: Compare) -> bool | None:
    """Compare equations, inequalities, and other relations."""
    a, b = _forward(answer), _forward(reference)
    if a[2] == b[2]:
        equal = all_same(a[1], b[1], compare)
        if equal:
            return True
        if set(a[2]) <= {"=", "!="} and len(a[1]) == 2 and all_same(a[1], b[1][::-1], compare):
            return True
    left, right = real_set(answer), real_set(reference)
    if left and right:
        return same_sets(left, right)
    if len(a[2]) != 1 or len(b[2]) != 1:
        return None
    if {a[2][0], b[2][0]} <= {"=", "!=", "<", "<=", ">", ">="}:
        if a[2] != b[2]:
            return None if "=" not in (a[2][0], b[2][0]) else False
        return _same_multiples(a, b)
    return False if a[2] != b[2] or all_same(a[1], b[1], compare) is False else None


def _forward(relation: Tree) -> Tree:
    """Return the relation with its signs turned to < or <=, if all can be."""
    _, operands, signs = relation
    if any(sign in (">", ">=") for sign in signs):
        return ("rel", list(operands[::-1]), [FLIPPED.get(sign, sign) for sign in signs[::-1]])
    return ("rel", list(operands), list(signs))


def _same_multiples(a: Tree, b: Tree) -> bool | None:
    """Return True if one difference of the sides is a multiple of the other, positive for < and <=."""
    sides = [*a[1], *b[1]]
    if any(side[0] not in EXPRESSIONS for side in sides):
        return None
    left, right = (("+", x, ("-", y)) for x, y in (a[1], b[1]))
    simple = [pair[0] for pair in (a[1], b[1]) if pair[0][0] == "v" and not has_variable(pair[1])]
    if len(simple) == 2 and a[2] == ["="]:  # x = 2 against y = 2, or against x = 3
        if simple[0] != simple[1]:
            return False
        return same_expressions(a[1][1], b[1][1])
    try:
        first = evaluate(left, 0), evaluate(right, 0)
        if not isinstance(first[0], Fraction) or not isinstance(first[1], Fraction):
            return same_expressions(left, right) or None
        if not first[0] or not first[1]:
            return None
        ratio = first[0] / first[1]
        if ratio < 0 and a[2][0] in ("<", "<="):
            return None
        return same_expressions(left, ("*", ("n", ratio, None), right)) or None
    except Opaque:
        return None


def consistent(relation: Tree) -> bool:
    """Return whether the values in a chain of equations are equal; ``x = 73 = 72`` is wrong for any x."""
    _, operands, signs = relation
    if set(signs) != {"="}:
        return True
    constants = [side for side in operands if side[0] in EXPRESSIONS and not has_variable(side)]
    last = operands[-1]
    forms = [side for side in operands[1:-1] if side[0] in EXPRESSIONS and has_variable(side)]
    if last[0] not in EXPRESSIONS or not has_variable(last) or constants:
        forms = []
    return all(same_expressions(side, constants[-1]) is not False for side in constants[:-1]) and all(
        same_expressions(side, last) is not False for side in forms
    )


# -- congruences ------------------------------------------------------------------------------


def same_congruences(answer: Tree, reference: Tree) -> bool | None:
    """Compare ``x = 1, 2 (mod 5)``; the residues are equal modulo the modulus, in any order."""
    (_, (left, *residues), modulus), (_, (other, *others), other_modulus) = answer, reference
    alike = [same_expressions(modulus, other_modulus), same_expressions(left, other)]
    if alike != [True, True]:
        return False if False in alike else None
    value = evaluate(modulus, 0) if not has_variable(modulus) else None
    if not isinstance(value, Fraction) or not value:
        return matched(residues, others, same_expressions)

    def same_residue(a: Tree, b: Tree) -> bool:
        x, y = (None if has_variable(part) else evaluate(part, 0) for part in (a, b))
        if isinstance(x, Fraction) and isinstance(y, Fraction):
            return ((x - y) / value).denominator == 1
        return bool(same_expressions(a, b))

    return all(any(same_residue(a, b) for b in others) for a in residues) and all(
        any(same_residue(a, b) for a in residues) for b in others
    )


# -- cases ------------------------------------------------------------------------------------


def same_cases(answer: Tree, reference: Tree, compare: Compare) -> bool | None:
    """Compare the lines of ``cases`` in any order: equal conditions must have equal values."""
    lines, others = _conditioned(answer[1]), _conditioned(reference[1])
    if lines is not None and others is not None:
        return _same_lines(lines, others, compare)
    if [line[1] is None for line in answer[1]] != [line[1] is None for line in reference[1]]:
        return None
    verdicts = [strictly(a[0], b[0], compare) for a, b in zip(answer[1], reference[1], strict=True)]
    verdicts += [
        strictly(a[1], b[1], compare)
        for a, b in zip(answer[1], reference[1], strict=True)
        if a[1] is not None
    ]
    return True if all(verdicts) else None


def _conditioned(lines: Sequence[tuple[Tree, Tree | None]]) -> list[tuple[Tree, RealSet]] | None:
    """Return the values with the sets where they hold; "otherwise" is the rest of the line."""
    found = [(value, None if condition is None else real_set(condition)) for value, condition in lines]
    sets = [part for _, part in found if part is not None]
    missing = sum(condition is None for _, condition in lines)
    if len(sets) + missing != len(lines) or len({part.name for part in sets}) != 1 or not sets[0].name:
        return None
    covered: list[Interval] = union([interval for part in sets for interval in part.parts])
    rest = RealSet(sets[0].name, complement(covered))
    return [(value, rest if part is None else part) for value, part in found]


def _same_lines(
    lines: Sequence[tuple[Tree, RealSet]], others: Sequence[tuple[Tree, RealSet]], compare: Compare
) -> bool | None:
    if len(lines) != len(others):
        return None
    unclear = False
    for value, where in lines:
        partners = [other for other, there in others if where.name == there.name and same_sets(where, there)]
        if len(partners) != 1:
            return False if partners == [] and len(lines) == len(others) else None
        equal = strictly(value, partners[0], compare)
        if equal is False:
            return False
        unclear = unclear or equal is None
    return None if unclear else True


# -- values with conditions -------------------------------------------------------------------


def same_given(answer: Tree, reference: Tree, compare: Compare) -> bool | None:
    """Compare values with conditions; integer parameters may have other names and other representatives."""
    (_, value, conditions), (_, other, others) = answer, reference
    integers, rest = parameters(conditions)
    other_integers, other_rest = parameters(others)
    if [where for _, where in integers] != [where for _, where in other_integers]:
        return False
    conditions_alike = matched(rest, other_rest, compare)
    if not conditions_alike:
        return conditions_alike
    for index, ((name, _), (other_name, _)) in enumerate(zip(integers, other_integers, strict=True)):
        fresh = ("v", f"parameter {index}")
        value, other = renamed(value, name, fresh), renamed(other, other_name, fresh)
    if len(integers) == 1 and integers[0][1] == _INTEGERS:
        return _same_families(value, other, "parameter 0", compare)
    return compare(value, other)


def parameters(conditions: Sequence[Tree]) -> tuple[list[tuple[str, Tree]], list[Tree]]:
    """Return the variables in a set of whole numbers, with the sets; and the other conditions."""
    found: list[tuple[str, Tree]] = []
    rest = []
    for condition in conditions:
        if condition[0] == "rel" and condition[2] == ["in"] and condition[1][0][0] == "v":
            name, where = condition[1][0][1], condition[1][1]
            if where[0] == "v" and where[1].partition("_")[0] in ("blackboard Z", "blackboard N"):
                found.append((name, where))
                continue
        rest.append(condition)
    return found, rest


def _same_families(answer: Tree, reference: Tree, parameter: str, compare: Compare) -> bool | None:
    parts = [
        tree[3] if tree[0] == "seq" and tree[1] in ("", "or", "and") else [tree]
        for tree in (answer, reference)
    ]
    if len(parts[0]) != len(parts[1]):
        return compare(answer, reference)
    rest = list(parts[1])
    for part in parts[0]:
        partner = next((other for other in rest if _same_family(part, other, parameter)), None)
        if partner is None:
            return compare(answer, reference)
        rest.remove(partner)
    return True


def _same_family(a: Tree, b: Tree, parameter: str) -> bool:
    """Return whether a + bk runs through the same numbers in both, for all integers k."""
    name, value = _named(a)
    other_name, other = _named(b)
    if name and other_name and not same_expressions(name, other_name):
        return False
    if value[0] not in EXPRESSIONS or other[0] not in EXPRESSIONS:
        return False
    steps = []
    for tree in (value, other):
        start, one, two = (_substituted(tree, parameter, k) for k in (0, 1, 2))
        step = ("+", one, ("-", start))
        if parameter not in names(tree) or not same_expressions(("+", two, ("-", one)), step):
            return bool(same_expressions(value, other))
        steps.append((start, step))
    (start, step), (other_start, other_step) = steps
    if not same_expressions(step, other_step) and not same_expressions(("-", step), other_step):
        return False
    shift = ("/", ("+", start, ("-", other_start)), step)
    try:
        offset = evaluate(shift, 0)
    except Opaque:
        return False
    if offset is None or (isinstance(offset, Fraction) and offset.denominator != 1):
        return False
    if isinstance(offset, Ball):
        nearest = Fraction(int(offset.re.to_integral_value()))
        return bool(same_expressions(shift, ("n", nearest, None)))
    return True


def _named(tree: Tree) -> tuple[Tree | None, Tree]:
    if tree[0] == "rel" and tree[2] == ["="]:
        return tree[1][0], tree[1][1]
    return None, tree


def _substituted(tree: Tree, name: str, value: int) -> Tree:
    replaced: Tree = renamed(tree, name, ("n", Fraction(value), None))
    return replaced
