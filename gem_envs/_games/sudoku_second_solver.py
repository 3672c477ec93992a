"""Second solver of Sudokus: reads the board as text, and meets each requirement of the rules exactly once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isqrt
from typing import TypeAlias

_Placement: TypeAlias = tuple[int, int, int]
"""Row, column, and number, all 1-based."""
_Need: TypeAlias = tuple[str, int, int]
"""A requirement: something that exactly one placement must provide, such as the number 3 in row 1."""


def ways_to_fill(board: str, most: int = 2) -> list[frozenset[_Placement]]:
    """Return up to `most` ways to fill a board, each with all placements.

    Args:
        board: A line for each row: its number, two blanks, and its cells, with dots for the
            empty ones. Bars between cells and other lines are passed over.
        most: Number of solutions after which the search ends.
    """
    rows = [re.findall(r"\d+|\.", line) for line in board.splitlines() if re.match(r" *\d+  [\d.]", line)]
    cells = {(int(row[0]), col): text for row in rows for col, text in enumerate(row[1:], 1)}
    scale = isqrt(len(cells))
    provided: dict[_Placement, list[_Need]] = {
        (row, col, number): _needs(row, col, number, isqrt(scale))
        for (row, col), text in cells.items()
        for number in (range(1, scale + 1) if text == "." else [int(text)])
    }
    providers: dict[_Need, set[_Placement]] = {
        need: set()
        for row, col, number in ((r, c, n) for r, c in cells for n in range(1, scale + 1))
        for need in _needs(row, col, number, isqrt(scale))
    }
    for placement, needs in provided.items():
        for need in needs:
            providers[need].add(placement)
    found = []
    for solution in _covers(providers, provided, []):
        found.append(frozenset(solution))
        if len(found) == most:
            break
    return found


def _needs(row: int, col: int, number: int, box: int) -> list[_Need]:
    block = (row - 1) // box * box + (col - 1) // box
    return [("cell", row, col), ("row", row, number), ("column", col, number), ("box", block, number)]


def _covers(
    providers: dict[_Need, set[_Placement]],
    provided: dict[_Placement, list[_Need]],
    chosen: list[_Placement],
) -> Iterator[list[_Placement]]:
    """Yield each exact cover, by Knuth's algorithm X on dictionaries."""
    if not providers:
        yield list(chosen)
        return
    need = min(providers, key=lambda one: len(providers[one]))
    for placement in sorted(providers[need]):
        chosen.append(placement)
        removed = _choose(placement, providers, provided)
        yield from _covers(providers, provided, chosen)
        _undo(placement, removed, providers, provided)
        chosen.pop()


def _choose(
    placement: _Placement, providers: dict[_Need, set[_Placement]], provided: dict[_Placement, list[_Need]]
) -> list[set[_Placement]]:
    removed = []
    for need in provided[placement]:
        for rival in providers[need]:
            for other in provided[rival]:
                if other != need:
                    providers[other].discard(rival)
        removed.append(providers.pop(need))
    return removed


def _undo(
    placement: _Placement,
    removed: list[set[_Placement]],
    providers: dict[_Need, set[_Placement]],
    provided: dict[_Placement, list[_Need]],
) -> None:
    for need in reversed(provided[placement]):
        providers[need] = removed.pop()
        for rival in providers[need]:
            for other in provided[rival]:
                if other != need:
                    providers[other].add(rival)
