r"""A learning task in which only the last turn earns a reward, for the choices of all turns.

With one token per byte, a response has 20 tokens. An estimator that discounts per token then gives the
choices of earlier turns almost no credit: two turns before a reward, gamma 0.9 leaves 0.01 of it instead of
0.81.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from gem_envs import MoveResult, TurnBasedEnv

_RIGHT = "231"


class Doors(TurnBasedEnv[str]):
    r"""Open one of three doors in each of three rooms; the right doors are the same in all episodes.

    Action: ``\boxed{open door 2}``.

    Rewards: the share of the rooms in which the right door was opened, paid in the last turn.
    """

    state_fields: ClassVar[tuple[str, ...]] = (*TurnBasedEnv.state_fields, "right")

    def new_game(self) -> None:
        self.turn_limit = len(_RIGHT)
        self.right = 0

    def rules(self) -> str:
        return "Open a door in each of three rooms, such as \\boxed{open door 1}."

    def parse(self, text: str) -> str | None:
        door = text.removeprefix("open door ")
        return door if door in [*_RIGHT] else None

    def play(self, move: str) -> MoveResult:
        self.right += move == _RIGHT[self.turn - 1]
        if self.turn < self.turn_limit:
            return "Next room.", 0.0, "continue"
        return "Outside.", self.progress(), "solved" if self.progress() == 1 else "lost"

    def progress(self) -> float:
        return self.right / self.turn_limit

    def random_move(self, random: Random) -> str:
        return f"open door {random.choice(_RIGHT)}"

    def best_move(self) -> str:
        return f"open door {_RIGHT[self.turn]}"
