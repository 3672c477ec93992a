"""Guess the number: a hidden number, and a hint after each guess."""

from __future__ import annotations

from math import ceil, sqrt
from random import Random

from gem_core._util.checks import check_int
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._text import integer

_FARTHEST = 10**12


class GuessTheNumber(TurnBasedEnv[int]):
    r"""Find a hidden number; the answer to each guess is higher or lower.

    Action: ``\boxed{7}``. A number out of range is an illegal move. A repeated guess gets the
    same answer and wastes the turn.

    Rewards: 1 for the number. On the last turn a wrong guess earns 1 - distance / (max - min),
    unless it was out of range or a repetition, which earn nothing. A format error ends the
    episode with -0.1.

    `max_return` is 1. The oracle bisects, which needs at most ``floor(log2(numbers)) + 1`` turns:
    every registered variant has that many, so there it always reaches the maximum.
    """

    state_fields = (*TurnBasedEnv.state_fields, "low", "high", "number", "guesses")

    def __init__(
        self, min_number: int | None = 1, max_number: int | None = 20, max_turns: int | None = 6
    ) -> None:
        """Set the range, or have it drawn at each reset.

        Args:
            min_number: Smallest possible number.
            max_number: Largest possible number.
            max_turns: Turn limit. None (together with the two above) draws a range at each reset: from
                1..10 to min + 5..50, with ``ceil(sqrt(max - min)) + 1`` turns.

        Raises:
            ConfigError: Only some of the three are None, or the range has fewer than two numbers.
        """
        check_together(min_number=min_number, max_number=max_number, max_turns=max_turns)
        self.size: tuple[int, int, int] | None = None
        if min_number is not None and max_number is not None and max_turns is not None:
            check_int("min_number", min_number, -_FARTHEST, _FARTHEST - 1)
            check_int("max_number", max_number, min_number + 1, _FARTHEST)
            self.size = (min_number, max_number, check_int("max_turns", max_turns, 1))

    def new_game(self) -> None:
        self.low, self.high, self.turn_limit = self.size or self._draw_size()
        self.number = self.low + int(self.random.random() * (self.high - self.low + 1))
        self.guesses: list[int] = []

    def _draw_size(self) -> tuple[int, int, int]:
        low = self.random.randint(1, 10)
        high = self.random.randint(low + 5, 50)
        return low, high, ceil(sqrt(high - low)) + 1

    def rules(self) -> str:
        return (
            f"Find the hidden number from {self.low} to {self.high} in at most {self.turn_limit} turns. "
            "After each guess you are told whether the number is higher or lower. "
            f"Give each guess as in \\boxed{{{self.high}}}."
        )

    parse = staticmethod(integer)

    def play(self, move: int) -> MoveResult:
        if not self.low <= move <= self.high:
            return f"Guesses must be from {self.low} to {self.high}.", 0.0, "illegal"
        before = move in self.guesses
        self.guesses.append(move)
        if move == self.number:
            return f"{move} is right.", 1.0, "solved"
        hint = "higher" if move < self.number else "lower"
        if before:
            return f"You guessed {move} before: the number is {hint}.", 0.0, "continue"
        return f"The number is {hint} than {move}.", 0.0, "continue"

    def progress(self) -> float:
        """Return the closeness of the last guess in range; 0 if it was a repetition."""
        if not self.guesses:
            return 0.0
        last = self.guesses[-1]
        return 0.0 if self.guesses.count(last) > 1 else 1.0 - abs(last - self.number) / (self.high - self.low)

    def limit_reward(self) -> float:
        return self.progress()

    def random_move(self, random: Random) -> str:
        return str(random.randint(self.low, self.high))

    def best_move(self) -> str:
        """Return the middle of the remaining range."""
        low = max((guess + 1 for guess in self.guesses if guess < self.number), default=self.low)
        high = min((guess - 1 for guess in self.guesses if guess > self.number), default=self.high)
        return str((low + high) // 2)
