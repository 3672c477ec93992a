"""Shortest solutions of a sliding puzzle: A* with Manhattan distance and linear conflicts."""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush


@lru_cache(maxsize=16)
def slides(rows: int) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return the moves for each cell of the blank, each with the cell of the tile that moves into it."""
    return tuple(
        tuple(
            (move, (row + down) * rows + col + right)
            for move, down, right in (("up", 1, 0), ("down", -1, 0), ("left", 0, 1), ("right", 0, -1))
            if 0 <= row + down < rows and 0 <= col + right < rows
        )
        for row in range(rows)
        for col in range(rows)
    )


@lru_cache(maxsize=16)
def goal(rows: int) -> tuple[int, ...]:
    """Return the solved board, row by row, with 0 for the blank."""
    return (*range(1, rows * rows), 0)


@lru_cache(maxsize=64)
def shortest_way(tiles: tuple[int, ...], rows: int, budget: int) -> tuple[str, ...] | None:
    """Return the moves of a shortest solution; None if `budget` positions are not enough to find one."""
    neighbors = slides(rows)
    came_from: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {tiles: None}
    cost = {tiles: 0}
    first = _distance(tiles, rows)
    waiting = [(first, first, tiles)]  # among equally long paths, the one nearer to its end first
    done: set[tuple[int, ...]] = set()
    while waiting and len(done) < budget:
        _, left, current = heappop(waiting)
        if not left:
            return _moves(came_from, current)
        if current in done:
            continue
        done.add(current)
        steps = cost[current] + 1
        blank = current.index(0)
        for move, source in neighbors[blank]:
            cells = list(current)
            cells[blank], cells[source] = cells[source], 0
            reached = tuple(cells)
            if steps < cost.get(reached, 1 << 30):
                cost[reached] = steps
                came_from[reached] = (current, move)
                left = _distance(reached, rows)
                heappush(waiting, (steps + left, left, reached))
    return None


def _moves(
    came_from: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None], end: tuple[int, ...]
) -> tuple[str, ...]:
    moves = []
    while step := came_from[end]:
        end, move = step
        moves.append(move)
    return tuple(reversed(moves))


def _distance(tiles: tuple[int, ...], rows: int) -> int:
    """Return a lower bound on the number of moves left; 0 only for the solved board."""
    total = 0
    for i in range(rows):
        total += _line(tiles[i * rows : (i + 1) * rows], i, rows, False) + _line(
            tiles[i::rows], i, rows, True
        )
    return total


@lru_cache(maxsize=200_000)
def _line(line: tuple[int, ...], index: int, rows: int, column: bool) -> int:
    """Return the cost of a row or column.

    It is the distance of the tiles from home, plus two moves for each tile that must leave the line to let
    another one pass.
    """
    cost = 0
    home = []  # home positions of the tiles of this line, in their current order
    for tile in line:
        if tile:
            row, col = divmod(tile - 1, rows)
            across, along = (col, row) if column else (row, col)
            cost += abs(across - index)
            if across == index:
                home.append(along)
    return cost + 2 * (len(home) - _longest_rising(home))


def _longest_rising(values: list[int]) -> int:
    """Return the length of the longest increasing subsequence."""
    best: list[int] = []
    for i, value in enumerate(values):
        best.append(1 + max((best[j] for j in range(i) if values[j] < value), default=0))
    return max(best, default=0)
