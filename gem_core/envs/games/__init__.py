"""Text games. This module holds their table of ids; the games are imported when they are made."""

from __future__ import annotations

from typing import Any

from gem_core.registration import register

_GUESS = "gem_core.envs.games.guess_the_number:GuessTheNumber"
_MASTERMIND = "gem_core.envs.games.mastermind:Mastermind"
_MINESWEEPER = "gem_core.envs.games.minesweeper:Minesweeper"
_HANOI = "gem_core.envs.games.tower_of_hanoi:TowerofHanoi"

# id, entry point, arguments (None: drawn at each reset), description
_TABLE: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("game:GuessTheNumber-v0", _GUESS, {"min_number": 1, "max_number": 20, "max_turns": 10},
     "Find a number from 1 to 20 in 10 turns"),
    ("game:GuessTheNumber-v0-easy", _GUESS, {"min_number": 1, "max_number": 10, "max_turns": 4},
     "Find a number from 1 to 10 in 4 turns"),
    ("game:GuessTheNumber-v0-hard", _GUESS, {"min_number": 1, "max_number": 50, "max_turns": 7},
     "Find a number from 1 to 50 in 7 turns"),
    ("game:GuessTheNumber-v0-random", _GUESS, {"min_number": None, "max_number": None, "max_turns": None},
     "Find a number; the range is drawn at reset"),
    ("game:Mastermind-v0", _MASTERMIND, {"code_length": 4, "num_numbers": 6, "max_turns": 20},
     "Find a code of 4 of 6 numbers in 20 turns"),
    ("game:Mastermind-v0-easy", _MASTERMIND, {"code_length": 2, "num_numbers": 6, "max_turns": 10},
     "Find a code of 2 of 6 numbers in 10 turns"),
    ("game:Mastermind-v0-hard", _MASTERMIND, {"code_length": 4, "num_numbers": 8, "max_turns": 30},
     "Find a code of 4 of 8 numbers in 30 turns"),
    ("game:Mastermind-v0-random", _MASTERMIND, {"code_length": None, "num_numbers": None, "max_turns": None},
     "Find a code; its size is drawn at reset"),
    ("game:Minesweeper-v0", _MINESWEEPER, {"rows": 8, "cols": 8, "num_mines": 10, "max_turns": 64},
     "Clear 8x8 cells with 10 mines in 64 turns"),
    ("game:Minesweeper-v0-easy", _MINESWEEPER, {"rows": 5, "cols": 5, "num_mines": 5, "max_turns": 25},
     "Clear 5x5 cells with 5 mines in 25 turns"),
    ("game:Minesweeper-v0-hard", _MINESWEEPER, {"rows": 8, "cols": 8, "num_mines": 12, "max_turns": 64},
     "Clear 8x8 cells with 12 mines in 64 turns"),
    ("game:Minesweeper-v0-random", _MINESWEEPER,
     {"rows": None, "cols": None, "num_mines": None, "max_turns": None},
     "Clear a board; its size is drawn at reset"),
    ("game:TowerofHanoi-v0", _HANOI, {"num_disks": 4, "max_turns": 20},
     "Move 4 disks in 20 turns"),
    ("game:TowerofHanoi-v0-easy", _HANOI, {"num_disks": 3, "max_turns": 10},
     "Move 3 disks in 10 turns"),
    ("game:TowerofHanoi-v0-hard", _HANOI, {"num_disks": 5, "max_turns": 35},
     "Move 5 disks in 35 turns"),
    ("game:TowerofHanoi-v0-random", _HANOI, {"num_disks": None, "max_turns": None},
     "Move a tower; its size is drawn at reset"),
)  # fmt: skip


def register_games() -> None:
    """File the ids of all games."""
    for id, entry_point, kwargs, description in _TABLE:
        register(id, entry_point, description=description, **kwargs)
