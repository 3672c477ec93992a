"""Games with several agents, and the table of their ids."""

from __future__ import annotations

from gem_core.registration import register

_PACKAGE = "gem_envs.multiagent"

# id, entry point within the package, description
_TABLE = (
    ("multi:TicTacToe-v0", "tic_tac_toe:make_tic_tac_toe", "Three in a row on a 3x3 board, two players"),
    ("multi:KuhnPoker-v0", "kuhn_poker:make_kuhn_poker", "A hand of poker with three cards, two players"),
    ("multi:Bargaining-v0", "bargaining:make_bargaining", "Divide items of private value, two players"),
)


def register_multiagent() -> None:
    """Register the ids: one side of each game against random play; ``opponent`` changes the opponent."""
    for id, entry_point, description in _TABLE:
        register(id, f"{_PACKAGE}.{entry_point}", description=description)
