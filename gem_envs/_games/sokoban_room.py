"""Rooms for Sokoban, generated backwards: from the solved room, boxes are pulled away from their targets.

The reversed moves are a solution, so every room has one within the given number of moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gem_envs._games.grid import DIRECTIONS, OPPOSITE
from gem_envs._games.sokoban_solver import walks

FLOOR, WALL, TARGET = ".", "#", "o"
_ATTEMPTS = 8
"""Number of rooms to try until every box is off its target; the best of them is used."""


@dataclass
class Room:
    """An initial room.

    Attributes:
        cells: Walls, floor, and targets, row by row.
        boxes: Cells of the boxes.
        player: Cell of the player.
        way: Moves of a solution, the next one last.
    """

    cells: str
    boxes: list[int]
    player: int
    way: list[str]

    @property
    def moved(self) -> int:
        """Number of boxes off the targets."""
        return sum(self.cells[box] != TARGET for box in self.boxes)


def make_room(random: Random, rows: int, cols: int, num_boxes: int, most_moves: int) -> Room:
    """Return a room that can be solved in at most `most_moves` moves; at least one box is off the targets."""
    best: Room | None = None
    for _ in range(_ATTEMPTS):
        cells = _carve(random, rows, cols)
        floor = [cell for cell, kind in enumerate(cells) if kind == FLOOR]
        if len(floor) < 3 * num_boxes + 1:
            continue
        *targets, player = random.sample(floor, num_boxes + 1)
        room = _pull_apart(random, _with_targets(cells, targets), targets, player, cols, most_moves)
        if room.moved == num_boxes:
            return room
        if best is None or room.moved > best.moved:
            best = room
    if best is None or not best.moved:
        return _plain_room(random, rows, cols, num_boxes, most_moves)
    return best


def _plain_room(random: Random, rows: int, cols: int, num_boxes: int, most_moves: int) -> Room:
    """Return a room without inner walls, its targets at the top, where the last box can always be pulled."""
    inner = [row * cols + col for row in range(1, rows - 1) for col in range(1, cols - 1)]
    cells = "".join(FLOOR if cell in inner else WALL for cell in range(rows * cols))
    targets = inner[:num_boxes]
    below = targets[-1] + cols
    room = Room(_with_targets(cells, targets), [*targets[:-1], below], below + cols, ["up"])
    apart = _pull_apart(random, room.cells, room.boxes, room.player, cols, most_moves, room.way)
    return apart if apart.moved else room


def _with_targets(cells: str, targets: list[int]) -> str:
    marked = list(cells)
    for target in targets:
        marked[target] = TARGET
    return "".join(marked)


def _carve(random: Random, rows: int, cols: int) -> str:
    """Return a floor, about a fifth of it inner walls; unreachable cells also become walls."""
    inner = [row * cols + col for row in range(1, rows - 1) for col in range(1, cols - 1)]
    cells = [WALL] * (rows * cols)
    for cell in inner:
        if random.random() < 0.8:
            cells[cell] = FLOOR
    largest: dict[int, tuple[int, str]] = {}
    seen: set[int] = set()
    for cell in inner:
        if cells[cell] == FLOOR and cell not in seen:
            area = walks("".join(cells), (), cell, cols)
            seen.update(area)
            if len(area) > len(largest):
                largest = area
    return "".join(FLOOR if cell in largest else WALL for cell in range(rows * cols))


def _pull_apart(
    random: Random,
    cells: str,
    boxes: list[int],
    player: int,
    cols: int,
    most_moves: int,
    way: list[str] | None = None,
) -> Room:
    """Walk to boxes and pull them, backwards in time, for up to `most_moves` moves."""
    steps = {name: down * cols + right for name, (down, right) in DIRECTIONS.items()}
    room = Room(cells, list(boxes), player, list(way or ()))
    last = -1
    for _ in range(3 * len(boxes)):
        area = walks(room.cells, room.boxes, room.player, cols)
        pulls = [
            (box, name)
            for box in room.boxes
            for name, step in steps.items()
            if box + step in area and box + 2 * step in area
        ]
        resting = [pull for pull in pulls if cells[pull[0]] == TARGET] or [p for p in pulls if p[0] != last]
        if not resting:
            break
        box, name = random.choice(resting)
        step = steps[name]
        walk = _way_to(area, box + step)
        if len(room.way) + len(walk) + 1 > most_moves:
            break
        room.way += [OPPOSITE[move] for move in walk]
        stand = box + step
        for _ in range(random.randint(1, 4)):
            beyond = stand + step
            if cells[beyond] == WALL or beyond in room.boxes or len(room.way) >= most_moves:
                break
            room.boxes[room.boxes.index(box)] = stand
            room.way.append(OPPOSITE[name])
            box, stand = stand, beyond
        room.player = stand
        last = box
    return room


def _way_to(area: dict[int, tuple[int, str]], cell: int) -> list[str]:
    """Return the moves from the start of a walk to `cell`."""
    moves = []
    while (step := area[cell])[1]:
        cell = step[0]
        moves.append(step[1])
    return moves[::-1]
