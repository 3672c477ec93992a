"""Text games and the table of their ids. A game is imported when an environment is made."""

from __future__ import annotations

from typing import Any

from gem_core import register

_CROSSWORDS = "gem_envs._games.crosswords:Crosswords"
_FIFTEEN = "gem_envs._games.fifteen_puzzle:FifteenPuzzle"
_2048 = "gem_envs._games.game_2048:Game2048"
_GUESS = "gem_envs._games.guess_the_number:GuessTheNumber"
_HANGMAN = "gem_envs._games.hangman:Hangman"
_MASTERMIND = "gem_envs._games.mastermind:Mastermind"
_MINESWEEPER = "gem_envs._games.minesweeper:Minesweeper"
_PASSCODE = "gem_envs._games.passcode:Passcode"
_SOKOBAN = "gem_envs._games.sokoban:Sokoban"
_SUDOKU = "gem_envs._games.sudoku:Sudoku"
_WORDLE = "gem_envs._games.wordle:Wordle"
_WIKI = "gem_envs._games.wiki_game:WikiGame"
_WORD_SEARCH = "gem_envs._games.word_search:WordSearch"
_HANOI = "gem_envs._games.tower_of_hanoi:TowerofHanoi"

# id, entry point, arguments (None: drawn at each reset), description
_TABLE: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("game:GuessTheNumber-v0", _GUESS, {"min_number": 1, "max_number": 20, "max_turns": 6},
     "Find a number from 1 to 20 in 6 turns"),
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
    ("game:Minesweeper-v0-easy", _MINESWEEPER, {"rows": 5, "cols": 5, "num_mines": 3, "max_turns": 25},
     "Clear 5x5 cells with 3 mines in 25 turns"),
    ("game:Minesweeper-v0-hard", _MINESWEEPER, {"rows": 8, "cols": 8, "num_mines": 12, "max_turns": 64},
     "Clear 8x8 cells with 12 mines in 64 turns"),
    ("game:Minesweeper-v0-random", _MINESWEEPER,
     {"rows": None, "cols": None, "num_mines": None, "max_turns": None},
     "Clear a board; its size is drawn at reset"),
    ("game:TowerofHanoi-v0", _HANOI, {"num_disks": 4, "max_turns": 20},
     "Move 4 disks to one peg in 20 turns"),
    ("game:TowerofHanoi-v0-easy", _HANOI, {"num_disks": 3, "max_turns": 10},
     "Move 3 disks to one peg in 10 turns"),
    ("game:TowerofHanoi-v0-hard", _HANOI, {"num_disks": 5, "max_turns": 35},
     "Move 5 disks to one peg in 35 turns"),
    ("game:TowerofHanoi-v0-random", _HANOI, {"num_disks": None, "max_turns": None},
     "Move disks to one peg; their number is drawn at reset"),
    ("game:FifteenPuzzle-v0", _FIFTEEN, {"num_rows": 3, "max_turns": 20},
     "Slide 8 tiles into order in 20 turns"),
    ("game:FifteenPuzzle-v0-easy", _FIFTEEN, {"num_rows": 3, "max_turns": 10},
     "Slide 8 tiles into order in 10 turns"),
    ("game:FifteenPuzzle-v0-hard", _FIFTEEN, {"num_rows": 4, "max_turns": 50},
     "Slide 15 tiles into order in 50 turns"),
    ("game:FifteenPuzzle-v0-random", _FIFTEEN, {"num_rows": None, "max_turns": None},
     "Slide tiles into order; their number is drawn at reset"),
    ("game:Sudoku-v0", _SUDOKU, {"clues": 30, "max_turns": 60, "scale": 9},
     "Fill 51 of 81 cells in 60 turns"),
    ("game:Sudoku-v0-easy", _SUDOKU, {"clues": 6, "max_turns": 12, "scale": 4},
     "Fill 10 of 16 cells in 12 turns"),
    ("game:Sudoku-v0-hard", _SUDOKU, {"clues": 31, "max_turns": 50, "scale": 9},
     "Fill 50 of 81 cells in 50 turns"),
    ("game:Sudoku-v0-random", _SUDOKU, {"clues": None, "max_turns": None, "scale": None},
     "Fill a Sudoku; its size is drawn at reset"),
    ("game:Game2048-v0", _2048, {"target_tile": 2048, "max_turns": 1000},
     "Make a tile of 2048 in 1000 turns"),
    ("game:Game2048-v0-easy", _2048, {"target_tile": 64, "max_turns": 50},
     "Make a tile of 64 in 50 turns"),
    ("game:Game2048-v0-hard", _2048, {"target_tile": 512, "max_turns": 50},
     "Get as close to a tile of 512 as possible in 50 turns"),
    ("game:Game2048-v0-extreme-hard", _2048, {"target_tile": 2048, "max_turns": 100},
     "Get as close to a tile of 2048 as possible in 100 turns"),
    ("game:Game2048-v0-random", _2048, {"target_tile": None, "max_turns": None},
     "Make a tile; which one is drawn at reset"),
    ("game:Passcode-v0", _PASSCODE, {"rooms": 20, "codes": 100},
     "Remember a code of 1 to 100 through 20 rooms"),
    ("game:Passcode-v0-easy", _PASSCODE, {"rooms": 6, "codes": 4},
     "Remember a code of 1 to 4 through 6 rooms"),
    ("game:Passcode-v0-hard", _PASSCODE, {"rooms": 60, "codes": 10000},
     "Remember a code of 1 to 10000 through 60 rooms"),
    ("game:Passcode-v0-random", _PASSCODE, {"rooms": None, "codes": None},
     "Remember a code; its size and the number of rooms are drawn at reset"),
    ("game:Sokoban-v0", _SOKOBAN, {"dim_room": [6, 6], "num_boxes": 3, "max_turns": 50},
     "Push 3 boxes to targets in a 6x6 room in 50 turns"),
    ("game:Sokoban-v0-easy", _SOKOBAN, {"dim_room": [6, 6], "num_boxes": 2, "max_turns": 20},
     "Push 2 boxes to targets in a 6x6 room in 20 turns"),
    ("game:Sokoban-v0-hard", _SOKOBAN, {"dim_room": [8, 8], "num_boxes": 4, "max_turns": 50},
     "Push 4 boxes to targets in an 8x8 room in 50 turns"),
    ("game:Sokoban-v0-random", _SOKOBAN, {"dim_room": None, "num_boxes": None, "max_turns": None},
     "Push boxes to targets; the size is drawn at reset"),
    ("game:Wordle-v0", _WORDLE, {"word_length": 4, "max_turns": 20},
     "Find a word of 4 letters in 20 turns"),
    ("game:Wordle-v0-easy", _WORDLE, {"word_length": 3, "max_turns": 15},
     "Find a word of 3 letters in 15 turns"),
    ("game:Wordle-v0-hard", _WORDLE, {"word_length": 5, "max_turns": 25},
     "Find a word of 5 letters in 25 turns"),
    ("game:Wordle-v0-random", _WORDLE, {"word_length": None, "max_turns": None},
     "Find a word; its length is drawn at reset"),
    ("game:Hangman-v0", _HANGMAN, {"word_length": 5, "max_turns": 12},
     "Guess the letters of a 5-letter word in 12 turns"),
    ("game:Hangman-v0-easy", _HANGMAN, {"word_length": 3, "max_turns": 14},
     "Guess the letters of a 3-letter word in 14 turns"),
    ("game:Hangman-v0-hard", _HANGMAN, {"word_length": 7, "hardcore": True, "max_turns": 10},
     "Guess the letters of a rare 7-letter word in 10 turns"),
    ("game:Hangman-v0-random", _HANGMAN, {"word_length": None, "max_turns": None},
     "Guess the letters of a word; its length is drawn at reset"),
    ("game:Crosswords-v0", _CROSSWORDS, {"hardcore": False, "max_turns": 80, "num_words": 5},
     "Fill a crossword of 5 words in 80 turns"),
    ("game:Crosswords-v0-easy", _CROSSWORDS, {"hardcore": False, "max_turns": 60, "num_words": 3},
     "Fill a crossword of 3 words in 60 turns"),
    ("game:Crosswords-v0-hard", _CROSSWORDS, {"hardcore": True, "max_turns": 40, "num_words": 5},
     "Fill a crossword of 5 words with hard clues in 40 turns"),
    ("game:Crosswords-v0-random", _CROSSWORDS, {"hardcore": None, "max_turns": None, "num_words": None},
     "Fill a crossword; plain or hard clues are drawn at reset"),
    ("game:WordSearch-v0", _WORD_SEARCH, {"hardcore": False, "max_turns": 20, "num_words": 5},
     "Find 5 listed words in a grid in 20 turns"),
    ("game:WordSearch-v0-easy", _WORD_SEARCH, {"hardcore": False, "max_turns": 20, "num_words": 3},
     "Find 3 listed words in a grid in 20 turns"),
    ("game:WordSearch-v0-hard", _WORD_SEARCH, {"hardcore": True, "max_turns": 20, "num_words": 5},
     "Find 5 rare words that are not listed in a grid in 20 turns"),
    ("game:WordSearch-v0-random", _WORD_SEARCH, {"hardcore": None, "max_turns": None, "num_words": None},
     "Find 5 words in a grid; whether they are listed or rare is drawn at reset"),
    ("game:WikiGame-v0", _WIKI, {"max_turns": 20, "variant": "noregrets"},
     "Follow links from page to page in 20 turns"),
    ("game:WikiGame-v0-easy", _WIKI, {"max_turns": 30, "variant": "noregrets"},
     "Follow links from page to page in 30 turns"),
    ("game:WikiGame-v0-hard", _WIKI, {"max_turns": 15, "variant": "noregrets"},
     "Follow links from page to page in 15 turns"),
    ("game:WikiGame-v0-random", _WIKI, {"max_turns": None, "variant": None},
     "Follow links from page to page; turns and rules are drawn at reset"),
)  # fmt: skip


def register_games() -> None:
    """Register the ids of all games."""
    for id, entry_point, kwargs, description in _TABLE:
        register(id, entry_point, description=description, **kwargs)
