"""The catalog: environments, with their tools, graders, sandboxes, and data.

`register` is the entry point of the group ``gem_core.envs``; it imports no environment.
"""

from __future__ import annotations

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


def register() -> None:
    """Register every environment of the catalog, and the wrappers that give an environment tools."""
    games.register_games()
    generated.register_generated()
    geometry.register_geometry()
    datasets.register_datasets()
    rg.register_lazily()
    webshop.register_webshop()
    multiagent.register_multiagent()
    service.register_service()
    terminal.register_terminal()
    databases.register_databases()
    tools.register_wrappers()
