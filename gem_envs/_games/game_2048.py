"""2048: slide tiles together until the target tile is made."""

from __future__ import annotations

from functools import lru_cache
from math import log2
from random import Random

from gem_core._util.checks import check_int, expected
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._games.game_2048_player import best_direction
from gem_envs._games.grid import DIRECTIONS
from gem_envs._games.slide import moved
from gem_envs._text import direction

_SIZES = ((16, 20), (32, 30), (64, 50))


class Game2048(TurnBasedEnv[str]):
    r"""Slide all tiles; equal tiles that meet merge into one of twice the number. Make the target tile.

    Action: ``\boxed{up}``, ``down``, ``left``, or ``right``. A move that changes nothing is illegal.
    After each move a 2 (nine times out of ten) or a 4 appears in an empty cell.

    Rewards: each doubling of the largest tile earns 1 / (doublings from the largest tile at the start
    to the target), so an episode that makes the target earns 1 in total, and ends. A full board without
    a move ends the episode without success. Nothing is paid at the turn limit. A format error ends the
    episode with -0.1.

    `max_return` is 1, or None if the turns are too few for the target even if every new tile were a 4, as in
    the variants ``hard`` and ``extreme-hard``, which keep GEM's sizes. The oracle searches its move, the new
    tile, and its next move, and picks the best board by a fixed measure (empty cells, order, tiles that can
    merge).
    """

    oracle_certain = False
    state_fields = (*TurnBasedEnv.state_fields, "target", "cells", "largest", "doublings")

    def __init__(
        self, target_tile: int | None = 2048, max_turns: int | None = 1000, board_size: int = 4
    ) -> None:
        """Set the target, or have it drawn at each reset.

        Args:
            target_tile: A power of 2, at least 8.
            max_turns: Turn limit. None (together with `target_tile`) draws (target, turns) from (16, 20),
                (32, 30), and (64, 50) at each reset.
            board_size: Number of rows, and of columns, of the board: 2 to 10.

        Raises:
            ConfigError: Only one of the first two is None, or one is out of range.
        """
        check_together(target_tile=target_tile, max_turns=max_turns)
        self.board_size = check_int("board_size", board_size, 2, 10)
        self.size: tuple[int, int] | None = None
        if target_tile is not None and max_turns is not None:
            check_int("target_tile", target_tile, 8, 1 << 100)
            if target_tile & (target_tile - 1):
                raise expected("target_tile", target_tile, "a power of 2")
            self.size = (target_tile, check_int("max_turns", max_turns, 1))
            if 4 * (max_turns + 2) < target_tile:
                self.max_return = None

    def new_game(self) -> None:
        self.target, self.turn_limit = self.size or self.random.choice(_SIZES)
        self.cells = [0] * self.board_size**2
        self._add_tile()
        self._add_tile()
        self.largest = max(self.cells)
        self.doublings = round(log2(self.target / self.largest))

    def rules(self) -> str:
        return (
            f"2048 on {self.board_size} rows and {self.board_size} columns. Make a tile of {self.target} in "
            f"at most {self.turn_limit} turns. A move slides all tiles as far as they go; two equal tiles "
            "that meet become one of twice their number, once per move. Then a 2 or a 4 appears in an empty "
            "cell, shown as a dot. A move has to change the board. "
            "Give each move as \\boxed{up}, \\boxed{down}, \\boxed{left} or \\boxed{right}."
        )

    def board(self) -> str:
        size = self.board_size
        cells = self.cells
        return "\n".join([_row(tuple(cells[i : i + size])) for i in range(0, len(cells), size)])

    parse = staticmethod(direction)

    def play(self, move: str) -> MoveResult:
        cells = moved(self.cells, self.board_size, move)
        if cells == self.cells:
            return f"Nothing can move {move}.", 0.0, "illegal"
        self.cells = cells
        self._add_tile()
        reward, largest = 0.0, max(cells)
        if largest > self.largest:
            reward = round(log2(largest / self.largest)) / self.doublings
            self.largest = largest
            if largest >= self.target:
                return f"You made a tile of {largest}.", reward, "solved"
        if 0 not in cells and not self._moves():
            return "No move is left. You lost.", reward, "lost"
        return f"The tiles moved {move}.", reward, "continue"

    def progress(self) -> float:
        return 1 - log2(self.target / self.largest) / self.doublings

    def random_move(self, random: Random) -> str:
        return random.choice(self._moves())

    def best_move(self) -> str:
        return best_direction(self.cells, self.board_size)

    # -- plumbing -----------------------------------------------------------------------------

    def _moves(self) -> list[str]:
        return [move for move in DIRECTIONS if moved(self.cells, self.board_size, move) != self.cells]

    def _add_tile(self) -> None:
        empty = [cell for cell, tile in enumerate(self.cells) if not tile]
        self.cells[empty[int(self.random.random() * len(empty))]] = 2 if self.random.random() < 0.9 else 4


@lru_cache(maxsize=10_000)
def _row(tiles: tuple[int, ...]) -> str:
    return "".join(f"{tile or '.':>5}" for tile in tiles)
