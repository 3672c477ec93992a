"""A fixed player of 2048: its own move, the new tile, its next move, and a measure of the board."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import log2

from gem_core.envs.games.grid import DIRECTIONS
from gem_core.envs.games.slide import moved

_LOST = -1e6


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
    empty = [cell for cell, tile in enumerate(cells) if not tile]
    total = 0.0
    for cell in empty:
        cells[cell] = 2
        total += max((_measure(after, size) for after in _next_boards(cells, size)), default=_LOST)
        cells[cell] = 0
    return total / len(empty)


def _next_boards(cells: list[int], size: int) -> list[list[int]]:
    return [after for move in DIRECTIONS if (after := moved(cells, size, move)) != cells]


def _measure(cells: list[int], size: int) -> float:
    value = 0.0
    for i in range(size):
        value += _line(tuple(cells[i * size : (i + 1) * size])) + _line(tuple(cells[i::size]))
    return value


@lru_cache(maxsize=200_000)
def _line(line: tuple[int, ...]) -> float:
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
