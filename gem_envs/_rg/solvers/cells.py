"""Solvers of tasks on a grid of cells that are on or off."""

from __future__ import annotations

import json
from collections import Counter

from gem_envs._rg.solvers.reading import find, grid

Cell = tuple[int, int]


def judge_game_of_life(prompt: str, answer: str) -> bool | None:
    """Compare the board after the steps."""
    steps = int(find(r"after (\d+) steps", prompt)[1])
    board = json.loads(find(r"\n(\[\[.*\]\])\.", prompt)[1])
    alive = _living(board)
    for _ in range(steps):
        alive = _stepped(alive, len(board), len(board[0]))
    right = [[int((i, j) in alive) for j in range(len(board[0]))] for i in range(len(board))]
    return json.dumps(json.loads(answer)) == json.dumps(right)


def solve_game_of_life_halting(prompt: str) -> str | None:
    """Simulate until no cell is alive or the steps are over."""
    steps = int(find(r"at or before (\d+) steps", prompt)[1])
    board = grid(find(r"Initial board:\n(.*)", prompt)[1])
    alive = _living(board)
    for _ in range(steps):
        alive = _stepped(alive, len(board), len(board[0]))
    return str(not alive)


def _living(board: list[list[int]]) -> set[Cell]:
    return {(i, j) for i, row in enumerate(board) for j, value in enumerate(row) if value}


def _stepped(alive: set[Cell], height: int, width: int) -> set[Cell]:
    """Return the living cells after a step, on a board whose opposite edges touch."""
    around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    neighbors = Counter(((i + di) % height, (j + dj) % width) for i, j in alive for di, dj in around)
    return {cell for cell, number in neighbors.items() if number == 3 or (number == 2 and cell in alive)}


def solve_largest_island(prompt: str) -> str | None:
    """Collect connected land."""
    land = _living(grid(find(r"matrix grid:\n(.*?)\n\n", prompt)[1]))
    largest = 0
    while land:
        front, size = [land.pop()], 0
        while front:
            i, j = front.pop()
            size += 1
            near = land & {(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)}
            land -= near
            front += near
        largest = max(largest, size)
    return str(largest)
