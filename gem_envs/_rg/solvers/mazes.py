"""Solvers of tasks on a grid with walls, fruit, outlines, or stones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

Cell = tuple[int, int]
Grid = list[str]

_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def solve_maze(prompt: str) -> str | None:
    """Count the fewest steps; None if the goal cannot be reached."""
    start, goal = re.findall(r"'(\S)' \((?:start|goal)\)", prompt)
    wall = re.findall(r"'(\S)' = Wall", prompt)[0]
    grid = prompt.split("\n```\n")[1].splitlines()  # a grid may be drawn with backticks
    steps = distances(grid, _places(grid, start), lambda cell: cell != wall)
    (end,) = _places(grid, goal)
    return str(steps[end]) if end in steps else None


def judge_shortest_path(prompt: str, answer: str) -> bool | None:
    """Walk the path, and compare its length with the fewest steps."""
    rows = [line for line in prompt.splitlines() if re.fullmatch(r"[*#OX]( [*#OX])*", line)]
    grid = [row.replace(" ", "") for row in rows]
    (start,), (goal,) = _places(grid, "*"), _places(grid, "#")
    steps = distances(grid, [start], lambda cell: cell != "X")
    if goal not in steps:
        return answer.strip() == "infeasible"
    place, words = start, answer.split()
    for word in words:
        if word not in _STEPS:
            return False
        place = (place[0] + _STEPS[word][0], place[1] + _STEPS[word][1])
        if place not in steps:
            return False
    return place == goal and len(words) == steps[goal]


def solve_rotten_oranges(prompt: str) -> str | None:
    """Return the minutes until the last orange is rotten, or -1."""
    grid = [line.replace(" ", "") for line in prompt.splitlines() if re.fullmatch(r"[012]( [012])*", line)]
    minutes = distances(grid, _places(grid, "2"), lambda cell: cell != "0")
    fresh = _places(grid, "1")
    return str(max((minutes[cell] for cell in fresh), default=0) if minutes.keys() >= set(fresh) else -1)


def distances(grid: Grid, starts: Iterable[Cell], enterable: Callable[[str], bool]) -> dict[Cell, int]:
    """Return the number of steps from the nearest start to each cell that can be reached."""
    front = list(starts)
    found = dict.fromkeys(front, 0)
    while front:
        ahead = []
        for cell in front:
            for other in neighbors(cell, grid):
                if other not in found and enterable(grid[other[0]][other[1]]):
                    found[other] = found[cell] + 1
                    ahead.append(other)
        front = ahead
    return found


def neighbors(cell: Cell, grid: Grid) -> Iterator[Cell]:
    """Yield the cells of a grid that share a side with a cell."""
    for down, right in _STEPS.values():
        i, j = cell[0] + down, cell[1] + right
        if 0 <= i < len(grid) and 0 <= j < len(grid[i]):
            yield i, j


def _places(grid: Grid, sign: str) -> list[Cell]:
    return [(i, j) for i, line in enumerate(grid) for j, cell in enumerate(line) if cell == sign]


def solve_rectangle_count(prompt: str) -> str | None:
    """Take the drawing apart into as few rectangles as possible: crossing lines go straight on."""
    drawing = prompt.partition("How many rectangles do you see in the grid below?\n")[2]
    lines = {
        (i, j): 1 if sign == "#" else 2
        for i, line in enumerate(drawing.splitlines())
        for j, sign in enumerate(line)
        if sign != " "
    }
    fewest = min(_numbers_of_rectangles(lines, 0), default=None)
    return None if fewest is None else str(fewest)


def _numbers_of_rectangles(lines: dict[Cell, int], taken: int) -> Iterator[int]:
    """Yield the number of rectangles for each way to take outlines away until nothing is left.

    The first cell of the first row that is left is the top left corner of a rectangle, which has an inside.

    Args:
        lines: Number of outlines through each cell, without cells that have none.
        taken: Number of rectangles that have been taken away.
    """
    if not lines:
        yield taken
        return
    top, left = min(lines)
    lowest = top
    while (lowest + 1, left) in lines:
        lowest += 1
    right = left
    while (top, right + 1) in lines:
        right += 1
        if right < left + 2 or (top + 1, right) not in lines:
            continue
        bottom = top
        while bottom < lowest and (bottom + 1, right) in lines:
            bottom += 1
            if bottom < top + 2 or (bottom, left + 1) not in lines or (bottom, right - 1) not in lines:
                continue
            edge = {(bottom, j) for j in range(left, right + 1)}
            if edge <= lines.keys():
                edge |= {(top, j) for j in range(left, right + 1)}
                edge |= {(i, j) for i in range(top, bottom + 1) for j in (left, right)}
                rest = {cell: n - (cell in edge) for cell, n in lines.items() if n > (cell in edge)}
                if not any(_is_end(cell, rest) for cell in edge):
                    yield from _numbers_of_rectangles(rest, taken + 1)


def _is_end(cell: Cell, lines: dict[Cell, int]) -> bool:
    """Return whether a line ends at or beside a cell, as no line of a rectangle does."""
    i, j = cell
    around = [(i, j), (i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
    return any(
        one in lines and sum((one[0] + down, one[1] + aside) in lines for down, aside in _STEPS.values()) < 2
        for one in around
    )


def solve_tsumego(prompt: str) -> str | None:
    """Return the move that takes the most white stones.

    None if there are several such moves or none, or several that take stones if the prompt asks for some.
    """
    board = [line.split()[1:] for line in prompt.split("```")[1].strip("\n").splitlines()[1:]]
    letters = prompt.split("```")[1].strip("\n").splitlines()[0].split()
    taken = {
        f"{letters[j]}{len(board) - i}": _taken(board, (i, j))
        for i, row in enumerate(board)
        for j, stone in enumerate(row)
        if stone == "."
    }
    fewest_moves = max(taken.values()) if "as many" in prompt else 1
    best = [move for move, count in taken.items() if count >= max(1, fewest_moves)]
    return best[0] if len(best) == 1 else None


def _taken(board: list[list[str]], move: Cell) -> int:
    """Return how many white stones a black stone takes."""
    grid = ["".join(row) for row in board]
    grid[move[0]] = grid[move[0]][: move[1]] + "X" + grid[move[0]][move[1] + 1 :]
    stones: set[Cell] = set()
    for start in neighbors(move, grid):
        if grid[start[0]][start[1]] == "O" and start not in stones:
            group = distances(grid, [start], lambda sign: sign == "O").keys()
            if not any(grid[i][j] == "." for stone in group for i, j in neighbors(stone, grid)):
                stones |= group
    return len(stones)
