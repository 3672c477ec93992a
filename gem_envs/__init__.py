"""The catalog: environments, with their tools, graders, sandboxes, and data.

`register` is the entry point of the group ``gem_core.envs``; it imports no environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names
from gem_envs import (
    databases,
    datasets,
    games,
    generated,
    geometry,
    multiagent,
    rg,
    service,
    terminal,
    tools,
    webshop,
)

if TYPE_CHECKING:
    from gem_envs.base import MoveResult, MoveVerdict, TurnBasedEnv

__all__ = [
    "MoveResult",
    "MoveVerdict",
    "TurnBasedEnv",
    "register",
]


def register() -> None:
    """Register every environment of the catalog, and the wrappers that give an environment tools."""
    games.register_games()
    generated.register_generated()
    geometry.register_geometry()
    datasets._register_datasets()
    rg.register_lazily()
    webshop.register_webshop()
    multiagent._register_multiagent()
    service.register_service()
    terminal.register_terminal()
    databases.register_databases()
    tools._register_wrappers()


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs.base": ["MoveResult", "MoveVerdict", "TurnBasedEnv"],
    },
)
