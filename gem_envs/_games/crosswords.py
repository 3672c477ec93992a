"""Crosswords: fill a small grid letter by letter."""

from __future__ import annotations

from functools import cache
from random import Random
from string import ascii_lowercase

from gem_core._util.checks import check_int, expected
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._games.crossword_maker import place_words
from gem_envs._games.data import read_lines
from gem_envs._games.grid import numbered_template
from gem_envs._text import integer, parts

BLOCK, EMPTY = ".", "_"
_SIZES = ((False, 30, 3), (True, 40, 3))


class Crosswords(TurnBasedEnv[tuple[int, int, str]]):
    r"""Find words from clues and enter them into a grid, one letter at a time.

    Action: ``\boxed{row col letter}``, row and column from 0, the letter in either case. A cell
    outside the grid, one that belongs to no word, and a filled one are illegal. A wrong letter is not entered
    but uses up the turn.

    Rewards: 1 / cells with a letter for each right letter, 1 in total for the solved grid. Nothing is
    paid at the turn limit. A format error ends the episode with -0.1.

    The grid never has more cells than turns. `max_return` is 1; the oracle knows the words, enters them
    cell by cell, and always reaches it.
    """

    state_fields = (*TurnBasedEnv.state_fields, "cols", "cells", "shown", "entries")

    def __init__(
        self, hardcore: bool | None = False, max_turns: int | None = 80, num_words: int | None = 5
    ) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            hardcore: Whether to use the hard clues: rarer words and wordplay.
            max_turns: Turn limit, at least 4 per word. None (together with the two others) draws
                (hardcore, turns, words) from (False, 30, 3) and (True, 40, 3) at each reset.
            num_words: Number of words in the grid, 1 to 20.

        Raises:
            ConfigError: Only some of the three are None, or one is out of range.
        """
        check_together(hardcore=hardcore, max_turns=max_turns, num_words=num_words)
        self.size: tuple[bool, int, int] | None = None
        if hardcore is not None and max_turns is not None and num_words is not None:
            check_int("num_words", num_words, 1, 20)
            check_int("max_turns", max_turns, 1)
            if max_turns < 4 * num_words:
                raise expected(
                    "max_turns", max_turns, f"at least {4 * num_words} turns for {num_words} words"
                )
            self.size = (hardcore, max_turns, num_words)

    def new_game(self) -> None:
        hardcore, self.turn_limit, num_words = self.size or self.random.choice(_SIZES)
        clues = _clues("hard" if hardcore else "plain")
        layout = place_words(self.random, list(clues), num_words, self.turn_limit)
        letters = {
            cell: letter
            for placed in layout
            for cell, letter in zip(placed.cells(), placed.word, strict=True)
        }
        rows, self.cols = 1 + max(row for row, _ in letters), 1 + max(col for _, col in letters)
        grid = [letters.get((row, col), BLOCK) for row in range(rows) for col in range(self.cols)]
        self.cells = "".join(grid)  # the solution, row by row
        self.shown = [BLOCK if letter == BLOCK else EMPTY for letter in grid]
        self.entries = [
            f"row {placed.row}, column {placed.col}, {'across' if placed.across else 'down'}, "
            f"{len(placed.word)} letters: {clues[placed.word]}"
            for placed in layout
        ]

    def rules(self) -> str:
        clues = "\n".join(f"- {entry}" for entry in self.entries)
        return (
            f"Crossword with {len(self.entries)} words. Fill every cell that shows {EMPTY} in at most "
            f"{self.turn_limit} turns, one letter per turn; cells that show {BLOCK} stay empty. Rows and "
            "columns count from 0. A wrong letter is refused. Give row, column and letter of each move in a "
            "box, for example \\boxed{0 3 e}. "
            f"Each clue says where its word begins:\n{clues}"
        )

    def board(self) -> str:
        return numbered_template(len(self.cells) // self.cols, self.cols) % tuple(self.shown)

    def parse(self, text: str) -> tuple[int, int, str] | None:
        words = text.replace(",", " ").split()
        return _read(words) or _read(parts(text))

    def play(self, move: tuple[int, int, str]) -> MoveResult:
        row, col, letter = move
        if not (0 <= col < self.cols and 0 <= row * self.cols < len(self.cells)):
            return f"There is no cell {row} {col}.", 0.0, "illegal"
        cell = row * self.cols + col
        if self.shown[cell] != EMPTY:
            why = "belongs to no word" if self.shown[cell] == BLOCK else f"holds {self.shown[cell]} already"
            return f"Cell {row} {col} {why}.", 0.0, "illegal"
        if self.cells[cell] != letter:
            return f"{letter} is wrong at {row} {col}.", 0.0, "continue"
        self.shown[cell] = letter
        reward = 1 / (len(self.cells) - self.cells.count(BLOCK))
        if EMPTY not in self.shown:
            return "The crossword is solved.", reward, "solved"
        return f"{letter} is right at {row} {col}.", reward, "continue"

    def progress(self) -> float:
        return 1 - self.shown.count(EMPTY) / (len(self.cells) - self.cells.count(BLOCK))

    def random_move(self, random: Random) -> str:
        cell = random.choice([cell for cell, shown in enumerate(self.shown) if shown == EMPTY])
        return f"{cell // self.cols} {cell % self.cols} {random.choice(ascii_lowercase)}"

    def best_move(self) -> str:
        cell = self.shown.index(EMPTY)
        return f"{cell // self.cols} {cell % self.cols} {self.cells[cell]}"


@cache
def _clues(level: str) -> dict[str, str]:
    """Return the clues by answer."""
    fields = [line.split("\t") for line in read_lines("clues.txt")]
    return {answer: clue for name, answer, clue in fields if name == level}


def _read(words: list[str] | None) -> tuple[int, int, str] | None:
    """Return a move as its three words."""
    if words is None or len(words) != 3:
        return None
    row, col, letter = integer(words[0]), integer(words[1]), words[2].lower()
    if row is None or col is None or len(letter) != 1 or letter not in ascii_lowercase:
        return None
    return row, col, letter
