"""The catalog: environments, with their tools, graders, sandboxes, and data.

`register` is the entry point of the group ``gem_core.envs``; it imports no environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names
from gem_envs import (
    _databases,
    _games,
    _generated,
    _geometry,
    _rg,
    _service,
    _terminal,
    _webshop,
    datasets,
    multiagent,
    tools,
)

if TYPE_CHECKING:
    from gem_envs._base import MoveResult, MoveVerdict, TurnBasedEnv

__all__ = [
    "MoveResult",
    "MoveVerdict",
    "TurnBasedEnv",
]


def register() -> None:
    """Register every environment of the catalog, and the wrappers that give an environment tools."""
    _games.register_games()
    _generated.register_generated()
    _geometry.register_geometry()
    datasets._register_datasets()
    _rg.register_lazily()
    _webshop.register_webshop()
    multiagent._register_multiagent()
    _service.register_service()
    _terminal.register_terminal()
    _databases.register_databases()
    tools._register_wrappers()


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs._base": ["MoveResult", "MoveVerdict", "TurnBasedEnv"],
    },
)
