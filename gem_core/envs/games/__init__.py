"""Text games. This module holds their table of ids; the games are imported when they are made."""

from __future__ import annotations


def register_games() -> None:
    """File the ids of all games."""
