"""How tiles slide and merge in 2048."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


def moved(cells: Sequence[int], size: int, move: str) -> list[int]:
    """Return the board, row by row, after all tiles have slid; equal to `cells` if no tile can slide."""
    result = list(cells)
    merged = to_start if move == "left" or move == "up" else to_end
    if move == "left" or move == "right":
        for start in range(0, size * size, size):
            end = start + size
            result[start:end] = merged(tuple(result[start:end]))
    else:
        for col in range(size):
            result[col::size] = merged(tuple(result[col::size]))
    return result


@lru_cache(maxsize=50_000)
def to_start(line: tuple[int, ...]) -> tuple[int, ...]:
    """Return a row or column after its tiles have slid to its first cell."""
    tiles: list[int] = []
    open_to_merge = False
    for tile in line:
        if not tile:
            continue
        if open_to_merge and tiles[-1] == tile:
            tiles[-1] = 2 * tile
            open_to_merge = False
        else:
            tiles.append(tile)
            open_to_merge = True
    return (*tiles, *[0] * (len(line) - len(tiles)))


@lru_cache(maxsize=50_000)
def to_end(line: tuple[int, ...]) -> tuple[int, ...]:
    """Return a row or column after its tiles have slid to its last cell."""
    return to_start(line[::-1])[::-1]
