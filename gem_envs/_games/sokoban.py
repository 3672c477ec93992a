"""Sokoban: push all boxes onto targets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random

from gem_core._util.checks import check_int, expected
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._games.grid import DIRECTIONS, OPPOSITE
from gem_envs._games.sokoban_room import TARGET, WALL, make_room
from gem_envs._games.sokoban_solver import solve
from gem_envs._text import direction

_SIZES = ((6, 6, 2, 20), (8, 8, 5, 50))
_SEARCH = 1000
"""Number of positions the oracle searches for one move, about 0.1 s."""


class Sokoban(TurnBasedEnv[str]):
    r"""Push every box onto a target; boxes can only be pushed, one at a time.

    Action: ``\boxed{up}``, ``down``, ``left``, or ``right``. A move into a wall, or into a box with a
    wall or a box behind it, is illegal.

    Rewards: 1 when every box is on a target. The last turn, if its move is legal, earns the fraction of
    boxes on targets. A format error ends the episode with -0.1.

    A room is generated backwards from its solved state, in at most `max_turns` moves, so every room can be
    solved within its turns.

    `max_return` is 1. The oracle plays a shortest solution if it finds one among 1,000 positions, and
    otherwise the solution from the generation of the room; from the start it reaches 1 in every registered
    variant. After pushes that leave both solutions it knows no move, because such a position is usually lost.
    """

    state_fields = (*TurnBasedEnv.state_fields, "cols", "room", "boxes", "player", "way")

    def __init__(
        self,
        dim_room: Sequence[int] | None = (6, 6),
        num_boxes: int | None = 3,
        max_turns: int | None = 50,
    ) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            dim_room: Numbers of rows and columns, including walls: 5 to 20 each.
            num_boxes: Number of boxes, at most one per four cells within the outer walls.
            max_turns: Turn limit. None (together with the two above) draws (rows, columns, boxes, turns)
                from (6, 6, 2, 20), and (8, 8, 5, 50) at each reset.

        Raises:
            ConfigError: Only some of the three are None, or one is out of range.
        """
        dims = None if dim_room is None else _pair(dim_room)
        check_together(dim_room=dims and dims[0], num_boxes=num_boxes, max_turns=max_turns)
        self.size: tuple[int, int, int, int] | None = None
        if dims is not None and num_boxes is not None and max_turns is not None:
            rows, cols = dims
            check_int("num_boxes", num_boxes, 1, (rows - 2) * (cols - 2) // 4)
            self.size = (rows, cols, num_boxes, check_int("max_turns", max_turns, 1))

    def new_game(self) -> None:
        rows, self.cols, num_boxes, self.turn_limit = self.size or self.random.choice(_SIZES)
        room = make_room(self.random, rows, self.cols, num_boxes, self.turn_limit)
        self.room, self.boxes, self.player = room.cells, room.boxes, room.player
        self.way = room.way  # moves of a known solution, the next one last; empty once a push has left it

    def rules(self) -> str:
        boxes = len(self.boxes)
        return (
            f"Sokoban in a room of {len(self.room) // self.cols} rows and {self.cols} columns with {boxes} "
            f"box{'es' if boxes > 1 else ''}. Push every box onto a target in at most {self.turn_limit} "
            "turns. A turn moves you one cell; moving into a box pushes it on, if the cell behind it is free."
            " Boxes cannot be pulled, and only one can be pushed at a time. "
            "# is a wall, . floor, o a target, B a box, X a box on a target, P you, Q you on a target. "
            "Give each move as \\boxed{up}, \\boxed{down}, \\boxed{left} or \\boxed{right}."
        )

    def board(self) -> str:
        cells = list(self.room)
        for box in self.boxes:
            cells[box] = "X" if cells[box] == TARGET else "B"
        cells[self.player] = "Q" if cells[self.player] == TARGET else "P"
        return _template(len(cells) // self.cols, self.cols) % tuple(cells)

    parse = staticmethod(direction)

    def play(self, move: str) -> MoveResult:
        step = self._step(move)
        cell = self.player + step
        if self.room[cell] == WALL:
            return f"There is a wall {_WHERE[move]}.", 0.0, "illegal"
        boxes = self.boxes
        if cell not in boxes:
            self._walked(move)
            self.player = cell
            return f"You moved {move}.", 0.0, "continue"
        beyond = cell + step
        if self.room[beyond] == WALL or beyond in boxes:
            return f"The box {_WHERE[move]} cannot be pushed.", 0.0, "illegal"
        boxes[boxes.index(cell)] = beyond
        self.player = cell
        if self.way and self.way[-1] == move:
            self.way.pop()
        else:
            self.way = []
        if self.room[beyond] == TARGET and self.progress() == 1:
            return "Every box is on a target.", 1.0, "solved"
        return f"You pushed a box {move}.", 0.0, "continue"

    def progress(self) -> float:
        return sum([self.room[box] == TARGET for box in self.boxes]) / len(self.boxes)

    def limit_reward(self) -> float:
        return self.progress()

    def random_move(self, random: Random) -> str:
        return random.choice([move for move in DIRECTIONS if self._is_legal(move)])

    def best_move(self) -> str | None:
        way = solve(self.room, tuple(self.boxes), self.player, self.cols, _SEARCH)
        if way is None:
            return self.way[-1] if self.way else None
        return way[0]

    # -- plumbing -----------------------------------------------------------------------------

    def _step(self, move: str) -> int:
        down, right = DIRECTIONS[move]
        return down * self.cols + right

    def _is_legal(self, move: str) -> bool:
        step = self._step(move)
        cell, beyond = self.player + step, self.player + 2 * step
        if self.room[cell] == WALL:
            return False
        return cell not in self.boxes or (self.room[beyond] != WALL and beyond not in self.boxes)

    def _walked(self, move: str) -> None:
        """Update the known solution: remove the move from it, or add its reverse."""
        if self.way:
            if self.way[-1] == move:
                self.way.pop()
            else:
                self.way.append(OPPOSITE[move])


_WHERE = {"up": "above you", "down": "below you", "left": "to your left", "right": "to your right"}


def _pair(dim_room: Sequence[int]) -> tuple[int, int]:
    if not isinstance(dim_room, (list, tuple)) or len(dim_room) != 2:
        raise expected("dim_room", dim_room, "rows and columns, such as [6, 6]")
    rows, cols = (check_int(f"dim_room[{i}]", value, 5, 20) for i, value in enumerate(dim_room))
    return rows, cols


@lru_cache(maxsize=64)
def _template(rows: int, cols: int) -> str:
    return "\n".join([" ".join(["%s"] * cols)] * rows)
