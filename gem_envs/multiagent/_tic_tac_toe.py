"""Tic-tac-toe: three in a row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import ClassVar

from gem_core import Env
from gem_envs._one_agent import one_side
from gem_envs._text import integer
from gem_envs.multiagent._turn_game import PLAYERS, TurnGame

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
EMPTY = "." * 9


class TicTacToe(TurnGame[int]):
    r"""Players take turns on a 3x3 board; `player_1` plays X and moves first.

    The move is the number of a free cell, from 1 (top left) to 9 (bottom right): ``\boxed{5}``. A win pays 1,
    a loss -1, and a full board without a line pays 0 to both. A forfeit costs 1. Perfect play by both sides
    is a draw; the oracle never loses, and it draws at random among equally good moves.
    """

    state_fields: ClassVar[tuple[str, ...]] = (*TurnGame.state_fields, "cells")
    format_error_reward = -1.0

    def new_game(self) -> None:
        self.turn_limit = 9
        self.cells = EMPTY

    def rules(self, agent: str) -> str:
        return (
            f"You play tic-tac-toe with {_mark(agent)}; X begins. Three of a kind in a row, a column or a "
            "diagonal win. A win pays 1 and a loss costs 1. An answer that cannot be read or names no free "
            f"cell forfeits the game and costs {-self.format_error_reward:g}. Answer with the number of a "
            "free cell, as \\boxed{5}."
        )

    def board(self, agent: str) -> str:
        shown = [mark if mark != "." else str(cell) for cell, mark in enumerate(self.cells, 1)]
        return "\n".join(" ".join(shown[row : row + 3]) for row in (0, 3, 6))

    def parse(self, text: str) -> int | None:
        return integer(text)

    def refusal(self, agent: str, move: int) -> str | None:
        if not 1 <= move <= 9:
            return "There is no such cell."
        return None if self.cells[move - 1] == "." else "That cell is taken."

    def play(self, agent: str, move: int) -> Mapping[str, float] | None:
        self.cells = _put(self.cells, move - 1)
        self.tell(self.other(agent), f"Your opponent took cell {move}.")
        if _won(self.cells):
            return {agent: 1.0, self.other(agent): -1.0}
        return None if "." in self.cells else dict.fromkeys(PLAYERS, 0.0)

    def random_move(self, agent: str, random: Random) -> str:
        return str(random.choice(_free(self.cells)) + 1)

    def best_move(self, agent: str, random: Random) -> str:
        return str(random.choice(best_cells(self.cells)) + 1)


def make_tic_tac_toe(opponent: str = "random", agent: str | None = None) -> Env:
    """Build one side of the game, or with ``opponent="self"`` both; see `one_side`."""
    return one_side(TicTacToe(), opponent, agent)


@cache
def value(cells: str) -> int:
    """Return the value of the position for the player to move, under perfect play: 1, 0, or -1."""
    if _won(cells):
        return -1
    return max((-value(_put(cells, cell)) for cell in _free(cells)), default=0)


def best_cells(cells: str) -> list[int]:
    """Return the cells, counted from 0, that keep the value of the position."""
    values = {cell: -value(_put(cells, cell)) for cell in _free(cells)}
    best = max(values.values())
    return [cell for cell, worth in values.items() if worth == best]


def _mark(agent: str) -> str:
    return "XO"[PLAYERS.index(agent)]


def _put(cells: str, cell: int) -> str:
    """Return the position after the player to move takes `cell`."""
    mark = "X" if cells.count("X") == cells.count("O") else "O"
    return cells[:cell] + mark + cells[cell + 1 :]


def _won(cells: str) -> bool:
    return any(cells[a] != "." and cells[a] == cells[b] == cells[c] for a, b, c in LINES)


def _free(cells: str) -> list[int]:
    return [cell for cell, mark in enumerate(cells) if mark == "."]
