"""Kuhn poker: three cards, one round of betting, a known value."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from gem_core import Env
from gem_envs._one_agent import one_side
from gem_envs.multiagent._turn_game import PLAYERS, TurnGame

CARDS = ("Jack", "Queen", "King")

ACTIONS = {
    "": ("check", "bet"),
    "check": ("check", "bet"),
    "bet": ("fold", "call"),
    "check bet": ("fold", "call"),
}
"""Possible actions by betting history, the cautious one first."""

CHANCES = {
    "": (1 / 3, 0.0, 1.0),
    "check": (1 / 3, 0.0, 1.0),
    "bet": (0.0, 1 / 3, 1.0),
    "check bet": (0.0, 2 / 3, 1.0),
}
"""An equilibrium: probability of the bold action with a Jack, a Queen, and a King, by betting history."""

VALUE = -1 / 18
"""Expected chips per hand of `player_1` when both players follow an equilibrium."""


class KuhnPoker(TurnGame[str]):
    r"""Each player antes one chip and holds one of three cards (Jack, Queen, King), hidden from the other.

    The move names an action, as in ``\boxed{bet}``: `player_1` checks or bets a chip; after a check,
    `player_2` checks or bets; after a bet, the other player folds or calls. Without a call, the player who
    bet takes the pot; otherwise the higher card does. The winner gains, and the loser loses, 1 chip, or 2
    after a call. A forfeit costs 2. The oracle follows an equilibrium: it loses 1/18 chip per hand as
    `player_1` and wins 1/18 as `player_2` against an equally good player, and it never does worse against
    anyone.
    """

    state_fields: ClassVar[tuple[str, ...]] = (*TurnGame.state_fields, "cards", "history")
    format_error_reward = -2.0

    def new_game(self) -> None:
        self.turn_limit = 3
        self.cards = dict(zip(PLAYERS, self.random.sample(range(len(CARDS)), 2), strict=True))
        self.history = ""

    def rules(self, agent: str) -> str:
        begin = "You begin." if agent == PLAYERS[0] else "Your opponent begins."
        return (
            "You play a hand of poker with three cards: Jack, Queen, King; the higher card wins. Both of "
            f"you put 1 chip into the pot. You hold the {CARDS[self.cards[agent]]}. {begin} A bet puts 1 "
            "more chip in, and a check can be answered by a bet. Against a bet, a call puts 1 chip in, and a "
            "fold leaves the pot to the other. An answer that cannot be read or is not allowed forfeits the "
            f"hand and costs {-self.format_error_reward:g} chips. Answer with what you do, as "
            "\\boxed{check}."
        )

    def board(self, agent: str) -> str:
        if agent != self.selector.selected or self.history not in ACTIONS:
            return ""
        return f"You may {' or '.join(ACTIONS[self.history])}."

    def parse(self, text: str) -> str | None:
        word = text.lower()
        return word if word in ("check", "bet", "call", "fold") else None

    def refusal(self, agent: str, move: str) -> str | None:
        return None if move in ACTIONS[self.history] else f"You cannot {move} now."

    def play(self, agent: str, move: str) -> Mapping[str, float] | None:
        other = self.other(agent)
        self.history = f"{self.history} {move}".strip()
        self.tell(other, f"Your opponent chose to {move}.")
        if self.history in ACTIONS:
            return None
        if move == "fold":
            return {agent: -1.0, other: 1.0}
        for player in PLAYERS:
            self.tell(player, f"Your opponent held the {CARDS[self.cards[self.other(player)]]}.")
        stake = 2.0 if move == "call" else 1.0
        gain = stake if self.cards[agent] > self.cards[other] else -stake
        return {agent: gain, other: -gain}

    def random_move(self, agent: str, random: Random) -> str:
        return random.choice(ACTIONS[self.history])

    def best_move(self, agent: str, random: Random) -> str:
        cautious, bold = ACTIONS[self.history]
        return bold if random.random() < CHANCES[self.history][self.cards[agent]] else cautious


def make_kuhn_poker(opponent: str = "random", agent: str | None = None) -> Env:
    """Build one side of the game, or with ``opponent="self"`` both; see `one_side`."""
    return one_side(KuhnPoker(), opponent, agent)
