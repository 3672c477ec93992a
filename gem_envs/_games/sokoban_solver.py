"""Solve Sokoban in the fewest moves by A* over pushes; the bound considers each box separately."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from gem_envs._games.grid import DIRECTIONS

Walks: TypeAlias = dict[int, tuple[int, str]]
"""Maps each reachable cell to the cell before it and the move from there; the start has no move."""
_State: TypeAlias = tuple[int, tuple[int, ...]]


def walks(cells: str, boxes: Collection[int], player: int, cols: int) -> Walks:
    """Return the cells that the player can reach without a push, by shortest paths."""
    ways = {player: (player, "")}
    border = [player]
    steps = _steps(cols)
    for cell in border:  # grows during the loop
        for name, step in steps:
            beside = cell + step
            if beside not in ways and cells[beside] != "#" and beside not in boxes:
                ways[beside] = (cell, name)
                border.append(beside)
    return ways


@lru_cache(maxsize=256)
def solve(cells: str, boxes: tuple[int, ...], player: int, cols: int, budget: int) -> tuple[str, ...] | None:
    """Return the moves of a shortest solution; None if `budget` positions are not enough to find one.

    Args:
        cells: Walls (``#``), targets (``o``), and floor, row by row; walls all around.
        boxes: Cells of the boxes.
        player: Cell of the player.
        cols: Number of columns of the room.
        budget: Number of positions to search, each after a push.
    """
    away = _pushes(cells, cols)
    start: _State = (player, tuple(sorted(boxes)))
    if any(away[box] is None for box in boxes):
        return None
    cost = {start: 0}
    came_from: dict[_State, tuple[_State, list[str]]] = {}
    done: set[_State] = set()
    order = count()  # breaks ties in order of discovery
    waiting = [(_sum(away, boxes), next(order), start)]
    while waiting and len(done) < budget:
        _, _, state = heappop(waiting)
        if state in done:
            continue
        done.add(state)
        player, placed = state
        if not _sum(away, placed):
            moves: list[str] = []
            while state in came_from:
                state, stretch = came_from[state]
                moves = stretch + moves
            return tuple(moves)
        area = walks(cells, placed, player, cols)
        for box in placed:
            for name, step in _steps(cols):
                beyond = box + step
                if box - step not in area or cells[beyond] == "#" or beyond in placed or away[beyond] is None:
                    continue
                after = (box, tuple(sorted(beyond if b == box else b for b in placed)))
                if after in done:
                    continue
                walk = []
                cell = box - step
                while (before := area[cell])[1]:
                    cell = before[0]
                    walk.append(before[1])
                total = cost[state] + len(walk) + 1
                if total < cost.get(after, 1 << 30):
                    cost[after] = total
                    came_from[after] = (state, [*reversed(walk), name])
                    heappush(waiting, (total + _sum(away, after[1]), next(order), after))
    return None


def _sum(away: tuple[int | None, ...], boxes: Collection[int]) -> int:
    return sum(away[box] or 0 for box in boxes)


@lru_cache(maxsize=64)
def _pushes(cells: str, cols: int) -> tuple[int | None, ...]:
    """Return, per cell, the pushes that a box there needs to reach a target; None if it never can."""
    away: list[int | None] = [0 if kind == "o" else None for kind in cells]
    border = [cell for cell, kind in enumerate(cells) if kind == "o"]
    for cell in border:
        for _, step in _steps(cols):
            origin, stand = cell - step, cell - 2 * step
            if away[origin] is None and cells[origin] != "#" and cells[stand] != "#":
                away[origin] = (away[cell] or 0) + 1
                border.append(origin)
    return tuple(away)


@lru_cache(maxsize=64)
def _steps(cols: int) -> tuple[tuple[str, int], ...]:
    return tuple((name, down * cols + right) for name, (down, right) in DIRECTIONS.items())
