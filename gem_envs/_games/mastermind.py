"""Mastermind: find a hidden code from the pegs that each guess earns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import permutations, product
from math import perm
from operator import eq
from random import Random

from gem_core._util.checks import check_int, expected
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._text import integers

_SIZES = ((2, 4, 10), (4, 6, 20), (4, 8, 30))
_ORACLE_CODES = 100_000


class Mastermind(TurnBasedEnv[list[int]]):
    r"""Find a code of numbers; each guess reveals how many are in place and how many occur elsewhere.

    Action: ``\boxed{3 1 4 2}``, with spaces or commas. A guess of the wrong length, with a number
    out of range or (unless `duplicate_numbers`) with a repeated number is illegal.

    Rewards: each guess earns (b - best so far) / code_length when its b numbers in place are more
    than those of every guess before, so an episode that finds the code earns 1 in total. Nothing is
    paid at the turn limit. A format error ends the episode with -0.1.

    `max_return` is 1. The oracle guesses the first code consistent with all answers so far. It needs
    at most 5 turns for 2 of 6 numbers, 6 for 4 of 6, and 7 for 4 of 8 (counted over all codes), so it
    always reaches the maximum in the registered variants. It knows no move if there are more
    than 100,000 codes.
    """

    state_fields = (*TurnBasedEnv.state_fields, "num_numbers", "code", "best", "guesses")

    def __init__(
        self,
        code_length: int | None = 4,
        num_numbers: int | None = 6,
        max_turns: int | None = 20,
        duplicate_numbers: bool = False,
    ) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            code_length: Length of the code.
            num_numbers: Largest number in the code; the smallest is 1.
            max_turns: Turn limit. None (together with the two above) draws (length, numbers, turns) from
                (2, 4, 10), (4, 6, 20), and (4, 8, 30) at each reset.
            duplicate_numbers: Whether a number may occur more than once in code and guess.

        Raises:
            ConfigError: Only some of the sizes are None, one is out of range, or the code is too long
                for distinct numbers.
        """
        check_together(code_length=code_length, num_numbers=num_numbers, max_turns=max_turns)
        self.size: tuple[int, int, int] | None = None
        self.duplicate_numbers = duplicate_numbers
        if code_length is not None and num_numbers is not None and max_turns is not None:
            self.size = (
                check_int("code_length", code_length, 1, 100),
                check_int("num_numbers", num_numbers, 2, 1000),
                check_int("max_turns", max_turns, 1),
            )
            if code_length > num_numbers and not duplicate_numbers:
                raise expected(
                    "num_numbers",
                    num_numbers,
                    f"at least code_length={code_length}, or duplicate_numbers=True",
                )

    def new_game(self) -> None:
        length, self.num_numbers, self.turn_limit = self.size or self.random.choice(_SIZES)
        self.code = self._draw(self.random, length)
        self.best = 0
        self.guesses: list[list[int]] = []

    def rules(self) -> str:
        return _rules(len(self.code), self.num_numbers, self.turn_limit, self.duplicate_numbers)

    parse = staticmethod(integers)

    def play(self, move: list[int]) -> MoveResult:
        length = len(self.code)
        if len(move) != length:
            return f"The code has {length} numbers; you gave {len(move)}.", 0.0, "illegal"
        if min(move) < 1 or max(move) > self.num_numbers:
            return f"The numbers are from 1 to {self.num_numbers}.", 0.0, "illegal"
        if not self.duplicate_numbers and len(set(move)) < length:
            return "The numbers of a guess must all be different.", 0.0, "illegal"
        black, white = pegs(move, self.code)
        self.guesses.append(move)
        reward = 0.0
        if black > self.best:
            reward = (black - self.best) / length
            self.best = black
        if black == length:
            return "That is the code.", reward, "solved"
        return f"In place: {black}. Elsewhere: {white}.", reward, "continue"

    def progress(self) -> float:
        return self.best / len(self.code)

    def random_move(self, random: Random) -> str:
        return " ".join(map(str, self._draw(random, len(self.code))))

    def best_move(self) -> str | None:
        """Return the first code, in ascending order, that is consistent with every answer so far."""
        answers = [(guess, pegs(guess, self.code)) for guess in self.guesses]
        for code in self._codes():
            if all(pegs(guess, code) == answer for guess, answer in answers):
                return " ".join(map(str, code))
        return None

    def _draw(self, random: Random, length: int) -> list[int]:
        numbers = range(1, self.num_numbers + 1)
        return random.choices(numbers, k=length) if self.duplicate_numbers else random.sample(numbers, length)

    def _codes(self) -> Iterable[tuple[int, ...]]:
        numbers, length = range(1, self.num_numbers + 1), len(self.code)
        if self.duplicate_numbers:
            return product(numbers, repeat=length) if len(numbers) ** length <= _ORACLE_CODES else ()
        return permutations(numbers, length) if perm(len(numbers), length) <= _ORACLE_CODES else ()


@lru_cache(maxsize=64)  # the text depends only on the size of the game
def _rules(length: int, num_numbers: int, turns: int, duplicates: bool) -> str:
    if duplicates:
        different, rule = "", "A number may occur more than once. "
    else:
        different, rule = " different", "The numbers of each guess must be different, too. "
    example = " ".join(str(place % num_numbers + 1) for place in range(length))
    return (
        f"Find the hidden code of {length}{different} numbers from 1 to {num_numbers} in at most {turns} "
        "turns. After each guess you learn how many of its numbers are in the right place, and how many "
        f"others occur in the code at another place. {rule}Give each guess in a box, for example "
        f"\\boxed{{{example}}}."
    )


def pegs(guess: Sequence[int], code: Sequence[int]) -> tuple[int, int]:
    """Return how many numbers of `guess` are in place in `code`, and how many others occur elsewhere."""
    black = sum(map(eq, guess, code))
    numbers = set(guess)
    if len(numbers) == len(guess):  # the usual case: each number counts once
        common = len(numbers.intersection(code))
    else:
        common = sum([min(guess.count(number), code.count(number)) for number in numbers])
    return black, common - black
