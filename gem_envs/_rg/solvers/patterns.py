"""Solvers of tasks that ask for a pattern: they try a family of simple rules.

A prompt does not say which rules are possible. An answer counts as determined if all rules of the family that
fit what is shown continue it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_OPERATIONS: list[Callable[[int, int], int]] = [
    lambda x, y: x + y,
    lambda x, y: abs(x - y),
    lambda x, y: x * y,
    lambda x, y: x**y,
]


def solve_modulo_grid(prompt: str) -> str | None:
    """Fill the holes by all rules that compare a remainder of a sum, difference, product, or power."""
    grid = [line for line in prompt.splitlines() if line and set(line) <= set("✅❌❔")]
    filled = {_filled(grid, values) for values in _remainders(len(grid), len(grid[0]))} - {None}
    return filled.pop() if len(filled) == 1 else None


def _remainders(height: int, width: int) -> Iterator[list[list[bool]]]:
    """Yield where a rule holds, for each rule."""
    for operation in _OPERATIONS:
        for first in (0, 1):
            values = [[operation(x + first, y + first) for x in range(width)] for y in range(height)]
            for divisor in range(1, 26):
                rest = [[value % divisor for value in row] for row in values]
                for target in range(divisor):
                    yield [[value == target for value in row] for row in rest]


def _filled(grid: list[str], holds: list[list[bool]]) -> str | None:
    """Return the grid as a rule fills it, None if the rule contradicts a cell that is shown."""
    rows = []
    for row, truths in zip(grid, holds, strict=True):
        full = "".join("✅" if truth else "❌" for truth in truths)
        if any(a not in (b, "❔") for a, b in zip(row, full, strict=True)):
            return None
        rows.append(full)
    return "\n".join(rows)


def solve_number_sequence(prompt: str) -> str | None:
    """Continue by all recurrences of the family that fit and are tested by a further term."""
    terms = [int(word) for word in prompt.strip().removesuffix(", ?").split(",")]
    continued = {after for rule in _recurrences() if (after := _continued(terms, rule)) is not None}
    return str(continued.pop()) if len(continued) == 1 else None


Recurrence = Callable[[int, int], int]
"""The next term after the last and the one before it."""


def _recurrences() -> Iterator[Recurrence]:
    for factor in range(-12, 13):
        for added in range(-30, 31):
            for earlier in (-2, -1, 0, 1, 2):
                yield lambda last, before, p=factor, q=earlier, r=added: p * last + q * before + r  # type: ignore[misc]
            yield lambda last, before, p=factor, r=added: p * (last // 2) + r  # type: ignore[misc]
    for added in range(-30, 31):
        yield lambda last, before, r=added: (last + r) // 2  # type: ignore[misc]
        yield lambda last, before, r=added: last * last + r  # type: ignore[misc]


def _continued(terms: list[int], rule: Recurrence) -> int | None:
    """Return the next term; None if the rule does not give the third and all later terms."""
    if any(rule(terms[k - 1], terms[k - 2]) != terms[k] for k in range(2, len(terms))):
        return None
    return rule(terms[-1], terms[-2])
