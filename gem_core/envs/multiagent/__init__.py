"""Environments with several agents, and the table of their ids."""

from __future__ import annotations

from typing import Any

from gem_core.registration import register

__all__ = ["AgentSelector", "MultiAgentEnv", "OneAgent"]

_PACKAGE = "gem_core.envs.multiagent"

# id, entry point within the package, description
_TABLE = (
    ("multi:TicTacToe-v0", "tic_tac_toe:make_tic_tac_toe", "Three in a row on a 3x3 board, two players"),
    ("multi:KuhnPoker-v0", "kuhn_poker:make_kuhn_poker", "A hand of poker with three cards, two players"),
    ("multi:Bargaining-v0", "bargaining:make_bargaining", "Divide items of private value, two players"),
)

_LAZY = {
    "AgentSelector": "selector",
    "MultiAgentEnv": "multi_agent_env",
    "OneAgent": "one_agent",
}


def register_multiagent() -> None:
    """Register the ids: one side of each game against random play; ``opponent`` changes the opponent."""
    for id, entry_point, description in _TABLE:
        register(id, f"{_PACKAGE}.{entry_point}", description=description)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"{_PACKAGE}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
