"""The built-in environments; `register_builtin` registers them without importing their modules."""

from __future__ import annotations

from gem_core.envs import (
    databases,
    datasets,
    games,
    generated,
    geometry,
    multiagent,
    rg,
    service,
    terminal,
    webshop,
)


def register_builtin() -> None:
    """Register every environment that ships with gem_core."""
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
