"""Text games. This module holds their table of ids; the games are imported when they are made."""

from __future__ import annotations

from typing import Any

from gem_core.registration import register

_GUESS = "gem_core.envs.games.guess_the_number:GuessTheNumber"

# id, entry point, arguments (None: drawn at each reset), description
_TABLE: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("game:GuessTheNumber-v0", _GUESS, {"min_number": 1, "max_number": 20, "max_turns": 10},
     "Find a number from 1 to 20 in 10 turns"),
    ("game:GuessTheNumber-v0-easy", _GUESS, {"min_number": 1, "max_number": 10, "max_turns": 4},
     "Find a number from 1 to 10 in 4 turns"),
    ("game:GuessTheNumber-v0-hard", _GUESS, {"min_number": 1, "max_number": 50, "max_turns": 7},
     "Find a number from 1 to 50 in 7 turns"),
    ("game:GuessTheNumber-v0-random", _GUESS, {"min_number": None, "max_number": None, "max_turns": None},
     "Find a number; range and turns differ by episode"),
)  # fmt: skip


def register_games() -> None:
    """File the ids of all games."""
    for id, entry_point, kwargs, description in _TABLE:
        register(id, entry_point, description=description, **kwargs)
