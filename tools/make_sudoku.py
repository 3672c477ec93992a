"""Generate the Sudoku puzzles that the game rotates and relabels, each minimal and with one solution.

    python tools/make_sudoku.py > gem_envs/_games/data/sudoku.txt

Each line is one puzzle, row by row: a digit is a given cell, and a letter (a for 1) is the solution of an
empty cell.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import islice

from gem_envs._games.sudoku_solver import solutions

PUZZLES = {4: (12, 4), 9: (200, 24)}
"""Maps the scale to the number of puzzles and the maximum number of given cells."""


def full_grid(scale: int, rng: random.Random) -> tuple[int, ...] | None:
    """Return a solved grid with random boxes on the diagonal, or None if there is no solution."""
    box = 2 if scale == 4 else 3
    cells = [0] * scale * scale
    for b in range(box):  # boxes on the diagonal share no row or column
        numbers = rng.sample(range(1, scale + 1), scale)
        for i, number in enumerate(numbers):
            cells[(b * box + i // box) * scale + b * box + i % box] = number
    return next(solutions(cells, scale), None)


def minimal(grid: tuple[int, ...], scale: int, rng: random.Random) -> list[int]:
    """Return the grid without the numbers that the remaining ones determine."""
    cells = list(grid)
    for cell in rng.sample(range(len(cells)), len(cells)):
        number, cells[cell] = cells[cell], 0
        if len(list(islice(solutions(cells, scale), 2))) > 1:
            cells[cell] = number
    return cells


def puzzles() -> Iterator[str]:
    """Yield the puzzles as lines."""
    rng = random.Random(0)
    for scale, (wanted, most) in PUZZLES.items():
        found: set[str] = set()
        while len(found) < wanted:
            grid = full_grid(scale, rng)
            if grid is None:
                continue
            cells = minimal(grid, scale, rng)
            if sum(map(bool, cells)) <= most:
                line = "".join(str(n) if given else chr(96 + n) for given, n in zip(cells, grid, strict=True))
                if line not in found:
                    found.add(line)
                    yield line


if __name__ == "__main__":
    sys.stdout.writelines(line + "\n" for line in puzzles())
