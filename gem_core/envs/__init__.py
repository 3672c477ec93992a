"""The built-in environments: `register_builtin` files them all without importing any of them."""

from __future__ import annotations

from gem_core.envs import games


def register_builtin() -> None:
    """File every environment that ships with gem_core."""
    games.register_games()
