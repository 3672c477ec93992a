"""Shortest ways to solve a sliding puzzle: A* with Manhattan distance and linear conflicts."""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush


@lru_cache(maxsize=16)
def slides(rows: int) -> tuple[tuple[tuple[str, int], ...], ...]:
    """For each cell of the blank the moves, each with the cell of the tile that moves into it."""
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
    """The solved board, row by row, with 0 for the blank."""
    return (*range(1, rows * rows), 0)


@lru_cache(maxsize=64)
def shortest_way(tiles: tuple[int, ...], rows: int, budget: int) -> tuple[str, ...] | None:
    """The moves of a shortest solution, or None when it is not found among `budget` positions."""
    neighbours = slides(rows)
    came_from: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {tiles: None}
    cost = {tiles: 0}
    first = _distance(tiles, rows)
    waiting = [(first, first, tiles)]  # of equally long ways the one that is nearer to its end
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
        for move, source in neighbours[blank]:
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
    """A lower bound of the moves that are left; 0 for the solved board only."""
    total = 0
    for i in range(rows):
        total += _line(tiles[i * rows : (i + 1) * rows], i, rows, False) + _line(
            tiles[i::rows], i, rows, True
        )
    return total


@lru_cache(maxsize=200_000)
def _line(line: tuple[int, ...], index: int, rows: int, column: bool) -> int:
    """What a row costs: the rows its tiles are away from home, and two moves for each tile that must
    leave it to let another pass; for a column alike.
    """
    cost = 0
    home = []  # where in this line its own tiles belong, in the order in which they stand
    for tile in line:
        if tile:
            row, col = divmod(tile - 1, rows)
            across, along = (col, row) if column else (row, col)
            cost += abs(across - index)
            if across == index:
                home.append(along)
    return cost + 2 * (len(home) - _longest_rising(home))


def _longest_rising(values: list[int]) -> int:
    """Length of the longest part, gaps allowed, that rises."""
    best: list[int] = []
    for i, value in enumerate(values):
        best.append(1 + max((best[j] for j in range(i) if values[j] < value), default=0))
    return max(best, default=0)
