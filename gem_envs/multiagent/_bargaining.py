"""Bargaining: two players divide items that each of them values privately."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from random import Random
from typing import ClassVar

from gem_core import Env
from gem_core._util.checks import check_int
from gem_envs._one_agent import one_side
from gem_envs._text import integers
from gem_envs.multiagent._turn_game import PLAYERS, TurnGame

ITEMS = ("books", "hats", "balls")
TOTAL = 10
"""Total value of all items for each player."""

ACCEPT = "accept"


class Bargaining(TurnGame[list[int] | str]):
    r"""Players take turns proposing a division of items until one of them accepts.

    There are 5 to 7 items of three kinds, worth 10 points in total to each player, who knows only their own
    values. A move is a proposal, the numbers of books, hats, and balls to keep (``\boxed{1 0 2}``), or
    ``\boxed{accept}`` for the other player's last proposal. After a deal, each player is paid the value of
    their share over 10, from 0 to 1; without a deal by the turn limit, 0. A forfeit costs 0.1. The oracle is
    an arbiter that sees both tables of values: it proposes the division with the largest product of both
    values, which wastes nothing, and accepts nothing worse (on the last turn, anything).

    Args:
        max_turns: Limit on the moves of both players together, at least 2.

    Raises:
        ConfigError: `max_turns` is out of range.
    """

    state_fields: ClassVar[tuple[str, ...]] = (*TurnGame.state_fields, "counts", "values", "kept")
    format_error_reward = -0.1

    def __init__(self, max_turns: int = 10) -> None:
        super().__init__()
        self.max_turns = check_int("max_turns", max_turns, 2)

    def new_game(self) -> None:
        self.turn_limit = self.max_turns
        self.counts = list(self.random.choice(_pools()))
        tables = _tables(tuple(self.counts))
        self.values = {player: list(self.random.choice(tables)) for player in PLAYERS}
        self.kept: list[int] | None = None
        """Items that the last proposer wants to keep; None before the first proposal."""

    def rules(self, agent: str) -> str:
        things = ", ".join(
            f"{name}: {count} (worth {worth} each to you)"
            for count, name, worth in zip(self.counts, ITEMS, self.values[agent], strict=True)
        )
        return (
            f"Two players share things: {things}. The other player has other values. Propose what you "
            "keep, as the numbers of books, hats and balls in a box: \\boxed{1 0 2}. Or take the last "
            f"proposal of the other with \\boxed{{{ACCEPT}}}. Without a deal after {self.turn_limit} turns "
            f"nobody gets anything; after a deal your share pays its worth over {TOTAL}. An answer that "
            "cannot be read or names what is not there forfeits the game, which ends it, and costs "
            f"{-self.format_error_reward:g}."
        )

    def board(self, agent: str) -> str:
        return f"Turns left: {self.turn_limit - self.turn}."

    def parse(self, text: str) -> list[int] | str | None:
        if text.lower() == ACCEPT:
            return ACCEPT
        numbers = integers(text)
        return numbers if numbers is not None and len(numbers) == len(ITEMS) else None

    def refusal(self, agent: str, move: list[int] | str) -> str | None:
        if isinstance(move, str):
            return "There is no proposal to accept." if self.kept is None else None
        if all(0 <= number <= count for number, count in zip(move, self.counts, strict=True)):
            return None
        return "There are not that many things."

    def play(self, agent: str, move: list[int] | str) -> Mapping[str, float] | None:
        other = self.other(agent)
        if isinstance(move, str):
            assert self.kept is not None
            self.tell(other, "The other player accepts.")
            return {agent: self.worth(agent, self._rest(self.kept)), other: self.worth(other, self.kept)}
        self.kept = move
        self.tell(other, f"The other player proposes: for you {_named(self._rest(move))}; "
                         f"for the other {_named(move)}.")  # fmt: skip
        return None

    def worth(self, agent: str, share: list[int]) -> float:
        """Return the value of a share for `agent`, from 0 to 1."""
        return sum(n * worth for n, worth in zip(share, self.values[agent], strict=True)) / TOTAL

    def fair_share(self, agent: str) -> list[int]:
        """Return the share of `agent` in the division with the largest product of both values."""
        first, second = PLAYERS

        def merit(share: list[int]) -> tuple[float, float]:
            mine, yours = self.worth(first, share), self.worth(second, self._rest(share))
            return mine * yours, mine + yours

        best = max(self._divisions(), key=merit)
        return best if agent == first else self._rest(best)

    def random_move(self, agent: str, random: Random) -> str:
        if self.kept is not None and random.random() < 0.25:
            return ACCEPT
        return " ".join(str(random.randint(0, count)) for count in self.counts)

    def best_move(self, agent: str, random: Random) -> str:
        share = self.fair_share(agent)
        last = self.turn == self.turn_limit - 1
        if self.kept is not None:
            offer = self.worth(agent, self._rest(self.kept))
            if last or offer >= self.worth(agent, share):
                return ACCEPT
        return " ".join(map(str, share))

    def _rest(self, share: list[int]) -> list[int]:
        return [count - number for number, count in zip(share, self.counts, strict=True)]

    def _divisions(self) -> list[list[int]]:
        return [list(share) for share in product(*(range(count + 1) for count in self.counts))]


def make_bargaining(opponent: str = "random", agent: str | None = None, max_turns: int = 10) -> Env:
    """Build one side of the game, or with ``opponent="self"`` both; see `one_side`."""
    return one_side(Bargaining(max_turns), opponent, agent)


def _named(share: list[int]) -> str:
    return ", ".join(f"{number} {name}" for number, name in zip(share, ITEMS, strict=True))


@cache
def _pools() -> list[tuple[int, ...]]:
    """Return the possible counts of items: 5 to 7 in total, 1 to 4 of each kind."""
    return [
        counts
        for counts in product(range(1, 5), repeat=len(ITEMS))
        if 5 <= sum(counts) <= 7 and len(_tables(counts)) > 1
    ]


@cache
def _tables(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the possible values of the kinds for which all items are worth `TOTAL`."""
    ranges = (range(TOTAL // count + 1) for count in counts)
    return [
        values
        for values in product(*ranges)
        if sum(count * value for count, value in zip(counts, values, strict=True)) == TOTAL
    ]
