"""A solver of tasks that show a rule on lists by examples: it tries a family of simple rules.

A prompt does not say which rules are possible. An answer counts as determined if all rules that fit the
examples give the same output, among the plain rules or, if none of these fits, among all.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator
from functools import cache

from gem_envs._rg.solvers.reading import UnknownPrompt

Rule = Callable[[list[int]], list[int]]

_ROUND = range(10, 100, 10)
"""Limits of rules that compare elements with a number."""


def solve_list_functions(prompt: str) -> str | None:
    """Apply all rules of the family that fit the examples; None if their outputs differ or none fits."""
    examples = [
        (ast.literal_eval(before), ast.literal_eval(after))
        for before, after in re.findall(r"Input \d+: (\[.*\])\nOutput \d+: (\[.*\])", prompt)
    ]
    questions = re.findall(r"^Input: (\[.*\])$", prompt, re.MULTILINE)
    if not examples or len(questions) != 1:
        raise UnknownPrompt(f"no examples or no question: {prompt[:200]!r}")
    question = ast.literal_eval(questions[0])
    for rules in _rules():
        fitting = [
            rule for rule in rules if all(_output(rule, before) == after for before, after in examples)
        ]
        if fitting:
            outputs = {str(_output(rule, question)) for rule in fitting}
            return outputs.pop() if len(outputs) == 1 else None
    return None


def _output(rule: Rule, numbers: list[int]) -> list[int] | None:
    """Return the output, None if the rule does not apply to these numbers."""
    try:
        return rule(list(numbers))
    except (IndexError, ValueError):
        return None


@cache
def _rules() -> tuple[tuple[Rule, ...], ...]:
    """Return the plain rules, and the others."""
    return tuple(_plain()), (*_places(), *_selections(), *_maps(), *_totals(), *_tests())


def _plain() -> Iterator[Rule]:
    yield lambda x: x
    yield lambda x: x[::-1]
    yield sorted
    yield lambda x: sorted(x, reverse=True)
    yield lambda x: [len(x)]
    yield lambda x: [sum(x)]
    yield lambda x: [max(x)]
    yield lambda x: [min(x)]


def _places() -> Iterator[Rule]:
    """Yield rules that leave out elements by their place, or repeated ones."""
    yield lambda x: list(dict.fromkeys(x))
    yield lambda x: sorted(set(x))
    for k in range(1, 4):
        yield lambda x, k=k: x[k:]  # type: ignore[misc]
        yield lambda x, k=k: x[:-k]  # type: ignore[misc]
        yield lambda x, k=k: x[:k]  # type: ignore[misc]
        yield lambda x, k=k: x[-k:]  # type: ignore[misc]
    yield lambda x: x[::2]
    yield lambda x: x[1::2]


def _selections() -> Iterator[Rule]:
    """Yield rules that keep elements by their value, or by the value of a neighbor, or pick one element."""
    for k in range(-5, 8):
        yield lambda x, k=k: [x[k]]  # type: ignore[misc]
    yield lambda x: [x[x[-1]]]
    yield lambda x: [x[x[0]]]
    yield lambda x: [x[x[-1] - 1]]
    for divisor in (2, 3, 5, 10):
        for rest in range(divisor):
            yield lambda x, d=divisor, r=rest: [a for a in x if a % d == r]  # type: ignore[misc]
            yield lambda x, d=divisor, r=rest: [a for a, b in itertools.pairwise(x) if b % d == r]  # type: ignore[misc]
            yield lambda x, d=divisor, r=rest: [b for a, b in itertools.pairwise(x) if a % d == r]  # type: ignore[misc]
    for limit in _ROUND:
        yield lambda x, m=limit: [a for a in x if a < m]  # type: ignore[misc]
        yield lambda x, m=limit: [a for a in x if a > m]  # type: ignore[misc]


def _maps() -> Iterator[Rule]:
    """Yield rules that change each element, or the elements at the ends."""
    for factor in range(-3, 6):
        for added in range(-10, 11):
            yield lambda x, p=factor, q=added: [p * a + q for a in x]  # type: ignore[misc]
            yield lambda x, p=factor, q=added: [p * x[-1] + q]  # type: ignore[misc]
    for factor in (-2, -1, 1, 2):
        for start in (0, 1):
            yield lambda x, p=factor, s=start: [a + p * i for i, a in enumerate(x, s)]  # type: ignore[misc]
    for change in (-2, -1, 1, 2):
        yield lambda x, c=change: [x[0] + c, *x[1:-1], x[-1] + c]  # type: ignore[misc]
        yield lambda x, c=change: [x[0] + c, *x[1:]]  # type: ignore[misc]
        yield lambda x, c=change: [*x[:-1], x[-1] + c]  # type: ignore[misc]


def _totals() -> Iterator[Rule]:
    """Yield rules that count or add elements."""
    yield lambda x: [len(set(x))]
    yield lambda x: [sum(set(x))]
    yield lambda x: [max(x) - min(x)]
    for value in range(11):
        yield lambda x, v=value: [x.count(v)]  # type: ignore[misc]
    for limit in _ROUND:
        for kind in (list, set):
            yield lambda x, m=limit, k=kind: [sum(a for a in k(x) if a < m)]  # type: ignore[misc]
            yield lambda x, m=limit, k=kind: [sum(a for a in k(x) if a > m)]  # type: ignore[misc]
        yield lambda x, m=limit: [sum(a < m for a in x)]  # type: ignore[misc]
        yield lambda x, m=limit: [sum(a > m for a in x)]  # type: ignore[misc]
    for divisor in (2, 3, 5, 10):
        yield lambda x, d=divisor: [sum(a % d == 0 for a in x)]  # type: ignore[misc]
        yield lambda x, d=divisor: [sum(a for a in x if a % d == 0)]  # type: ignore[misc]


def _tests() -> Iterator[Rule]:
    """Yield rules whose output is one of two numbers."""
    for yes, no in ((1, 0), (0, 1)):
        yield lambda x, y=yes, n=no: [y if x == sorted(x) else n]  # type: ignore[misc]
        yield lambda x, y=yes, n=no: [y if x == sorted(x, reverse=True) else n]  # type: ignore[misc]
        for divisor in (2, 3, 4, 10):
            yield lambda x, y=yes, n=no, d=divisor: [n if any(a % d for a in x) else y]  # type: ignore[misc]
