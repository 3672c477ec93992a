"""A fixed player of 2048: its own move, the new tile, its next move, and a measure of the board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import log2
from operator import ne
from typing import TypeAlias

from gem_envs._games.grid import DIRECTIONS
from gem_envs._games.slide import moved, to_end, to_start

_LOST = -1e6
_Line: TypeAlias = tuple[int, ...]


def best_direction(cells: Sequence[int], size: int) -> str:
    """Return the legal move with the highest expected value of the board after the next tile."""
    best, chosen = float("-inf"), ""
    for move in DIRECTIONS:
        after = moved(cells, size, move)
        if after == cells:
            continue
        value = _after_new_tile(after, size)
        if value > best:
            best, chosen = value, move
    return chosen


def _after_new_tile(cells: list[int], size: int) -> float:
    """Return the mean value over the empty cells, assuming that the new tile is a 2."""
    rows = [tuple(cells[start : start + size]) for start in range(0, size * size, size)]
    columns = list(zip(*rows, strict=True))
    across = _Slide(rows, to_start), _Slide(rows, to_end)
    down = _Slide(columns, to_start), _Slide(columns, to_end)
    empty = [cell for cell, tile in enumerate(cells) if not tile]
    total = 0.0
    for cell in empty:
        row, column = divmod(cell, size)
        new_row = (*rows[row][:column], 2, *rows[row][column + 1 :])
        new_column = (*columns[column][:row], 2, *columns[column][row + 1 :])
        values = [slide.value(row, new_row) for slide in across]
        values += [slide.value(column, new_column) for slide in down]
        total += max((value for value in values if value is not None), default=_LOST)
    return total / len(empty)


class _Slide:
    """One move of a board, given as its rows or its columns, one of which can be replaced."""

    def __init__(self, lines: list[_Line], slid: Callable[[_Line], _Line]) -> None:
        self.slid = slid
        self.after = list(map(slid, lines))
        self.changed = list(map(ne, lines, self.after))
        self.num_changed = sum(self.changed)
        self.values = list(map(_value, self.after))
        self.total = sum(self.values)

    def value(self, index: int, line: _Line) -> float | None:
        """Return the value after the move if line `index` is `line`, or None if nothing can move."""
        after = self.slid(line)
        if after == line and self.num_changed == self.changed[index]:
            return None
        lines = [*self.after[:index], after, *self.after[index + 1 :]]
        crossing = sum(map(_value, zip(*lines, strict=True)))
        return self.total - self.values[index] + _value(after) + crossing


@lru_cache(maxsize=200_000)
def _value(line: _Line) -> float:
    """Return the value of a row or column: empty cells, mergeable neighbors, and order toward one end."""
    levels = [log2(tile) if tile else 0.0 for tile in line]
    value = 600.0 * line.count(0)
    rising = falling = 0.0
    for left, right in pairwise(levels):
        if left == right and left:
            value += 700.0
        rising += max(0.0, left**4 - right**4)
        falling += max(0.0, right**4 - left**4)
    return value - 20.0 * min(rising, falling)
