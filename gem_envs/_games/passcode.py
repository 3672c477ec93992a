"""Passcode: a code that is shown once, long before it is needed."""

from __future__ import annotations

from random import Random

from gem_core._util.checks import check_int
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._text import integer

_WALK = "walk"
_SIGNS = ("price", "year", "temperature", "address")
_SIZES = ((6, 4), (20, 100), (60, 10_000))


class Passcode(TurnBasedEnv[int | str]):
    r"""Walk through rooms to a door, and give the code that a sign in one of the first rooms showed.

    The signs in the other rooms show other numbers. The code stands in the first third of the rooms, so an
    agent that keeps only the last part of a long history has to write it down.

    Action: ``\boxed{walk}`` enters the next room, ``\boxed{7}`` gives a code at the door. A code elsewhere, a
    walk through the closed door, and a number that is no code are illegal.

    Rewards: 1 for the code, 0 for any other code, which ends the episode. Nothing is paid at the turn
    limit. A format error ends the episode with -0.1.

    `max_return` is 1. The oracle walks to the door and gives the code, which takes ``rooms + 1`` turns.
    """

    state_fields = (*TurnBasedEnv.state_fields, "signs", "codes", "code", "room")

    def __init__(self, rooms: int | None = 20, codes: int | None = 100) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            rooms: Number of rooms before the door.
            codes: Number of codes; the code is one of 1 to `codes`. None (together with `rooms`) draws
                (rooms, codes) from (6, 4), (20, 100), and (60, 10000) at each reset.

        Raises:
            ConfigError: Only one of the two is None, or one is out of range.
        """
        check_together(rooms=rooms, codes=codes)
        self.size: tuple[int, int] | None = None
        if rooms is not None and codes is not None:
            self.size = (check_int("rooms", rooms, 1, 10_000), check_int("codes", codes, 2, 10**12))

    def new_game(self) -> None:
        rooms, self.codes = self.size or self.random.choice(_SIZES)
        self.turn_limit = rooms + 2
        self.code = self.random.randint(1, self.codes)
        self.signs = [
            f"A sign shows the {self.random.choice(_SIGNS)}: {self.random.randint(1, self.codes)}."
            for _ in range(rooms)
        ]
        self.signs[self.random.randrange((rooms + 2) // 3)] = f"A sign shows the code: {self.code}."
        self.room = 0

    def rules(self) -> str:
        return (
            f"Walk through {len(self.signs)} rooms to a door. One sign on the way shows the code of the "
            f"door, a number from 1 to {self.codes}; remember it. Enter the next room with \\boxed{{walk}}. "
            f"At the door, give the code, as in \\boxed{{{self.codes}}}. You have {self.turn_limit} turns."
        )

    def parse(self, text: str) -> int | str | None:
        return _WALK if text.lower() == _WALK else integer(text)

    def play(self, move: int | str) -> MoveResult:
        at_door = self.room == len(self.signs)
        if isinstance(move, str):
            if at_door:
                return "The door is closed. Give the code.", 0.0, "illegal"
            self.room += 1
            return self._sign(), 0.0, "continue"
        if not at_door:
            return "The door is not here. Walk on.", 0.0, "illegal"
        if not 1 <= move <= self.codes:
            return f"Codes are from 1 to {self.codes}.", 0.0, "illegal"
        if move == self.code:
            return "The door opens.", 1.0, "solved"
        return "The door stays closed for good.", 0.0, "lost"

    def _sign(self) -> str:
        sign = self.signs[self.room - 1]
        return f"{sign}\nYou are at the door." if self.room == len(self.signs) else sign

    def progress(self) -> float:
        return self.room / len(self.signs)

    def random_move(self, random: Random) -> str:
        return "walk" if self.room < len(self.signs) else str(random.randint(1, self.codes))

    def best_move(self) -> str:
        """Return the walk to the door, and the code there, which the player has seen by then."""
        return "walk" if self.room < len(self.signs) else str(self.code)
