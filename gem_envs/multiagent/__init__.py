"""Games with several agents, one side of them as an environment (`OneAgent`), and the table of their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core import register
from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_envs._one_agent import OneAgent
    from gem_envs.multiagent._turn_game import TurnGame

__all__ = ["OneAgent", "TurnGame"]


# id, entry point, description
_TABLE = (
    (
        "multi:TicTacToe-v0",
        "gem_envs.multiagent._tic_tac_toe:make_tic_tac_toe",
        "Three in a row on a 3x3 board, two players",
    ),
    (
        "multi:KuhnPoker-v0",
        "gem_envs.multiagent._kuhn_poker:make_kuhn_poker",
        "A hand of poker with three cards, two players",
    ),
    (
        "multi:Bargaining-v0",
        "gem_envs.multiagent._bargaining:make_bargaining",
        "Divide items of private value, two players",
    ),
)


def _register_multiagent() -> None:
    """Register the ids: one side of each game against random play; ``opponent`` changes the opponent."""
    for id, entry_point, description in _TABLE:
        register(id, entry_point, description=description)


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs._one_agent": ["OneAgent"],
        "gem_envs.multiagent._turn_game": ["TurnGame"],
    },
)
