"""Solvers of puzzles on a board: Sudoku, queens, Sokoban, Rush Hour, Rubik's cube, and Tower of Hanoi."""

from __future__ import annotations

import re
from typing import TypeAlias

Place: TypeAlias = tuple[int, int]


def solve_sudoku(prompt: str) -> str | None:
    """Fill the grid; None if that is possible in several ways or none."""
    rows = [line.split() for line in prompt.splitlines() if re.fullmatch(r"[1-9_]( [1-9_])+", line.strip())]
    size = len(rows)
    height = {4: 2, 9: 3}[size]
    units = [{(i, j) for j in range(size)} for i in range(size)]
    units += [{(i, j) for i in range(size)} for j in range(size)]
    units += [
        {(i + di, j + dj) for di in range(height) for dj in range(height)}
        for i in range(0, size, height)
        for j in range(0, size, height)
    ]
    peers = {
        (i, j): set().union(*(unit for unit in units if (i, j) in unit)) - {(i, j)}
        for i in range(size)
        for j in range(size)
    }
    options = {cell: set(range(1, size + 1)) for cell in peers}
    for i, row in enumerate(rows):
        for j, sign in enumerate(row):
            if sign != "_" and not _place((i, j), int(sign), options, peers):
                return None
    found: list[dict[Place, set[int]]] = []
    _search(options, peers, found)
    if len(found) != 1:
        return None
    return "\n".join(" ".join(str(min(found[0][i, j])) for j in range(size)) for i in range(size))


def _place(cell: Place, digit: int, options: dict[Place, set[int]], peers: dict[Place, set[Place]]) -> bool:
    """Write a digit and what follows from it; return whether every cell still has an option."""
    if digit not in options[cell]:
        return False
    options[cell] = {digit}
    for peer in peers[cell]:
        if digit in options[peer]:
            options[peer] = options[peer] - {digit}
            if not options[peer]:
                return False
            if len(options[peer]) == 1 and not _place(peer, min(options[peer]), options, peers):
                return False
    return True


def _search(
    options: dict[Place, set[int]], peers: dict[Place, set[Place]], found: list[dict[Place, set[int]]]
) -> None:
    """Add up to two solutions to `found`."""
    open_cells = [cell for cell, digits in options.items() if len(digits) > 1]
    if not open_cells:
        found.append(options)
        return
    cell = min(open_cells, key=lambda one: len(options[one]))
    for digit in sorted(options[cell]):
        trial = dict(options)
        if _place(cell, digit, trial, peers):
            _search(trial, peers, found)
        if len(found) > 1:
            return


solve_mini_sudoku = solve_sudoku


def judge_n_queens(prompt: str, answer: str) -> bool | None:
    """Check that all given queens are there, one is in each row, and none attacks another."""
    given, shown = (
        [line.split() for line in text.splitlines() if re.fullmatch(r"[Q_]( [Q_])*", line.strip())]
        for text in (prompt, answer)
    )
    size = len(given)
    if [len(row) for row in shown] != [size] * size:
        return False
    if any(
        a == "Q" != b for row, line in zip(given, shown, strict=True) for a, b in zip(row, line, strict=True)
    ):
        return False
    queens = [(i, j) for i, row in enumerate(shown) for j, sign in enumerate(row) if sign == "Q"]
    lines = (
        {i for i, _ in queens},
        {j for _, j in queens},
        {i + j for i, j in queens},
        {i - j for i, j in queens},
    )
    return len(queens) == size and all(len(line) == size for line in lines)


def judge_sokoban(prompt: str, answer: str) -> bool | None:
    """Make the moves, and check that every box is on a goal."""
    lines = [line.split() for line in prompt.splitlines() if re.fullmatch(r"\+[ *%@X$+-]*\+", line.strip())]
    signs = {(i, j): sign for i, line in enumerate(lines) for j, sign in enumerate(line)}
    walls = {place for place, sign in signs.items() if sign == "+"}
    goals = {place for place, sign in signs.items() if sign in "%X$"}
    boxes = {place for place, sign in signs.items() if sign in "@$"}
    (player,) = (place for place, sign in signs.items() if sign in "*%")
    for letter in answer.strip():
        if letter not in "UDLR":
            return False
        down, right = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}[letter]
        ahead, beyond = (player[0] + down, player[1] + right), (player[0] + 2 * down, player[1] + 2 * right)
        if ahead in walls or (ahead in boxes and beyond in walls | boxes):
            return False
        if ahead in boxes:
            boxes = boxes - {ahead} | {beyond}
        player = ahead
    return boxes == goals


Cars = dict[str, tuple[Place, ...]]


def judge_rush_hour(prompt: str, answer: str) -> bool | None:
    """Make the moves, and check that the red car is at the right edge."""
    cars, walls = _parked(prompt)
    for move in answer.split():
        match = re.fullmatch(r"([A-Z])([+-])(\d)", move)
        if match is None or match[1] not in cars:
            return False
        for _ in range(int(match[3])):
            moved = _driven(cars[match[1]], 1 if match[2] == "+" else -1)
            if not _free(moved, match[1], cars, walls):
                return False
            cars[match[1]] = moved
    return max(j for _, j in cars["A"]) == 5


def way_out(prompt: str) -> str | None:
    """Return as few steps by one space as possible to the exit; None if there is no way."""
    start, walls = _parked(prompt)
    seen: dict[frozenset[tuple[str, tuple[Place, ...]]], str] = {frozenset(start.items()): ""}
    front = [start]
    while front:
        ahead = []
        for cars in front:
            path = seen[frozenset(cars.items())]
            if max(j for _, j in cars["A"]) == 5:
                return path.strip()
            for letter, place in cars.items():
                for step in (1, -1):
                    moved = _driven(place, step)
                    if _free(moved, letter, cars, walls):
                        other = cars | {letter: moved}
                        key = frozenset(other.items())
                        if key not in seen:
                            seen[key] = f"{path} {letter}{step:+d}"
                            ahead.append(other)
        front = ahead
    return None


def _parked(prompt: str) -> tuple[Cars, set[Place]]:
    """Return the places of the cars and of the walls."""
    rows = prompt.partition("Board:\n")[2].split()
    signs = {(i, j): sign for i, row in enumerate(rows) for j, sign in enumerate(row)}
    letters = sorted(set(signs.values()) - {".", "x"})
    cars = {letter: tuple(sorted(place for place in signs if signs[place] == letter)) for letter in letters}
    return cars, {place for place, sign in signs.items() if sign == "x"}


def _driven(car: tuple[Place, ...], step: int) -> tuple[Place, ...]:
    across = car[0][0] == car[1][0]
    return tuple((i + (0 if across else step), j + (step if across else 0)) for i, j in car)


def _free(car: tuple[Place, ...], letter: str, cars: Cars, walls: set[Place]) -> bool:
    taken = {place for other, places in cars.items() if other != letter for place in places} | walls
    return all(0 <= i < 6 and 0 <= j < 6 and (i, j) not in taken for i, j in car)


def judge_tower_of_hanoi(prompt: str, answer: str) -> bool | None:
    """Make the moves, and check that all disks arrive."""
    disks, pegs = map(int, re.findall(r"with (\d+) disks? and (\d+) pegs", prompt)[0])
    source, target = map(int, re.findall(r"from Peg (\d+) to Peg (\d+) following", prompt)[0])
    stacks: dict[int, list[int]] = {peg: [] for peg in range(1, pegs + 1)}
    stacks[source] = list(range(disks, 0, -1))
    for line in answer.strip().splitlines():
        match = re.fullmatch(r"Move disk (\d+) from Peg (\d+) to Peg (\d+)", line.strip())
        if match is None:
            return False
        disk, here, there = map(int, match.groups())
        if here not in stacks or there not in stacks or stacks[here][-1:] != [disk]:
            return False
        if stacks[there] and stacks[there][-1] < disk:
            return False
        stacks[there].append(stacks[here].pop())
    return len(stacks[target]) == disks


_FACES = {"U": (0, 1, 0), "L": (-1, 0, 0), "F": (0, 0, 1), "R": (1, 0, 0), "B": (0, 0, -1), "D": (0, -1, 0)}
"""Direction of each face: right, up, and toward the viewer."""
Vector = tuple[int, int, int]


def judge_rubiks_cube(prompt: str, answer: str) -> bool | None:
    """Turn the faces, and check that each shows one color."""
    lines = [line.split() for line in prompt.splitlines() if re.fullmatch(r"( +[WYROGB])+ *", line)]
    if [len(line) for line in lines] != [3] * 3 + [12] * 3 + [3] * 3:
        return None
    net = {"U": lines[:3], "D": lines[6:]}
    net |= {face: [line[3 * k : 3 * k + 3] for line in lines[3:6]] for k, face in enumerate("LFRB")}
    stickers = {
        _spot(face, row, column): net[face][row][column]
        for face in _FACES
        for row in range(3)
        for column in range(3)
    }
    for move in answer.split():
        if re.fullmatch(r"[ULFRBD]['2]?", move) is None:
            return False
        axis = _FACES[move[0]]
        for _ in range({"": 1, "2": 2, "'": 3}[move[1:]]):
            stickers = {
                (_clockwise(spot, axis), _clockwise(facing, axis))
                if sum(a * b for a, b in zip(spot, axis, strict=True)) == 1
                else (spot, facing): color
                for (spot, facing), color in stickers.items()
            }
    return all(
        len({color for (_, facing), color in stickers.items() if facing == way}) == 1
        for way in _FACES.values()
    )


def _spot(face: str, row: int, column: int) -> tuple[Vector, Vector]:
    """Return where a sticker is, as the place of its small cube and the direction it faces.

    The side faces are unfolded around the cube; the upper one is seen from above with the front at the
    bottom, the lower one from below with the front at the top.
    """
    across, down = column - 1, row - 1
    spot = {
        "U": (across, 1, down),
        "D": (across, -1, -down),
        "F": (across, -down, 1),
        "B": (-across, -down, -1),
        "R": (1, -down, -across),
        "L": (-1, -down, across),
    }[face]
    return spot, _FACES[face]


def _clockwise(vector: Vector, axis: Vector) -> Vector:
    """Turn a vector by a quarter, clockwise for a viewer toward whom the axis points."""
    a, b = axis, vector
    along = sum(x * y for x, y in zip(a, b, strict=True))
    cross = (b[1] * a[2] - b[2] * a[1], b[2] * a[0] - b[0] * a[2], b[0] * a[1] - b[1] * a[0])
    x, y, z = (along * p + q for p, q in zip(a, cross, strict=True))
    return x, y, z
