"""Word search: find words in a grid of letters."""

from __future__ import annotations

from functools import cache
from itertools import chain
from random import Random
from string import ascii_lowercase

from gem_core._util.checks import check_int
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._games.grid import numbered_template
from gem_envs._games.words import WordRarity, words
from gem_envs._text import integers

_SIZES = ((False, 20, 5), (True, 20, 5))
_LENGTHS = {False: range(3, 9), True: range(5, 11)}
_TRIES = 30
"""Number of random positions to try for a word before using one that is free by construction."""


class WordSearch(TurnBasedEnv[list[int]]):
    r"""Find words that are hidden in a grid of letters, from left to right or from top to bottom.

    Action: ``\boxed{row0 col0 row1 col1}``: the first and the last letter of a word, in either order,
    from 0. A line that leaves the grid, is neither a row nor a column, or was tried before is illegal.

    Rewards: 1 / hidden words for each word found, 1 in total; a word counts wherever it is spelled.
    Nothing is paid at the turn limit. A format error ends the episode with -0.1.

    `max_return` is 1. The oracle knows where the words are and reaches it if `max_turns` is at least the
    number of words, as in every registered variant.
    """

    state_fields = (
        *TurnBasedEnv.state_fields,
        "side",
        "cells",
        "shown",
        "hidden",
        "places",
        "listed",
        "found",
        "tried",
    )

    def __init__(
        self, hardcore: bool | None = False, max_turns: int | None = 20, num_words: int | None = 5
    ) -> None:
        """Set the size, or have it drawn at each reset.

        Args:
            hardcore: Whether the words are longer, rarer, and not listed; only their lengths are shown.
            max_turns: Turn limit. None (together with the two others) draws `hardcore` at each reset, with
                5 words and 20 turns.
            num_words: Number of hidden words, 1 to 30.

        Raises:
            ConfigError: Only some of the three are None, or one is out of range.
        """
        check_together(hardcore=hardcore, max_turns=max_turns, num_words=num_words)
        self.size: tuple[bool, int, int] | None = None
        if hardcore is not None and max_turns is not None and num_words is not None:
            check_int("num_words", num_words, 1, 30)
            self.size = (hardcore, check_int("max_turns", max_turns, 1), num_words)

    def new_game(self) -> None:
        hardcore, self.turn_limit, num_words = self.size or self.random.choice(_SIZES)
        self.hidden = self._draw_words(hardcore, num_words)
        self.side = max(max(map(len, self.hidden)) * 3 // 2, num_words + 3)
        self.places, letters = self._place()  # row and column of both ends of each word
        self.shown = [
            letters.get(cell) or self.random.choice(ascii_lowercase) for cell in range(self.side**2)
        ]
        self.cells = "".join(self.shown)
        self.listed = not hardcore
        self.found: list[str] = []
        self.tried: list[list[int]] = []

    def rules(self) -> str:
        hint = "They are listed below the grid" if self.listed else "Only their lengths are known"
        return (
            f"Word search: find {len(self.hidden)} hidden words in a grid of {self.side} rows and columns in "
            f"at most {self.turn_limit} turns. Words run from left to right or from top to bottom. {hint}; "
            "the letters of those you found are in upper case. Rows and columns count from 0. "
            "Give row and column of the first and of the last letter of each word in a box, for example "
            "\\boxed{0 0 0 4} for the first five letters of row 0. "
            "No line can be tried twice."
        )

    def board(self) -> str:
        grid = numbered_template(self.side, self.side) % tuple(self.shown)
        left = [text for text in self.hidden if text not in self.found]
        if not left:
            return grid
        hints = left if self.listed else [f"{len(text)} letters" for text in left]
        return f"{grid}\nWords left: {', '.join(hints)}."

    parse = staticmethod(integers)

    def play(self, move: list[int]) -> MoveResult:
        if len(move) != 4:
            return f"A line is four numbers; you gave {len(move)}.", 0.0, "illegal"
        if min(move) < 0 or max(move) >= self.side:
            return f"Rows and columns are from 0 to {self.side - 1}.", 0.0, "illegal"
        line = move if move[:2] <= move[2:] else [*move[2:], *move[:2]]
        row, col, last_row, last_col = line
        if row != last_row and col != last_col:
            return "A word runs along a row or a column.", 0.0, "illegal"
        if line in self.tried:
            return "You tried that line before.", 0.0, "illegal"
        self.tried.append(line)
        cells = _line(line, self.side)
        text = self.cells[cells.start : cells.stop : cells.step]
        if text not in self.hidden or text in self.found:
            return f"{text} is none of the words that are left.", 0.0, "continue"
        self.found.append(text)
        for cell in cells:
            self.shown[cell] = self.cells[cell].upper()
        if len(self.found) == len(self.hidden):
            return f"You found {text}, the last word.", 1 / len(self.hidden), "solved"
        return f"You found {text}.", 1 / len(self.hidden), "continue"

    def progress(self) -> float:
        return len(self.found) / len(self.hidden)

    def random_move(self, random: Random) -> str:
        """Return a line of at least two letters, a new one unless nearly all were tried."""
        for _ in range(_TRIES):
            low, high = sorted(random.sample(range(self.side), 2))
            across = random.randrange(self.side)
            line = [across, low, across, high] if random.random() < 0.5 else [low, across, high, across]
            if line not in self.tried:
                break
        return " ".join(map(str, line))

    def best_move(self) -> str:
        line = next(
            line for text, line in zip(self.hidden, self.places, strict=True) if text not in self.found
        )
        return " ".join(map(str, line))

    def verify(self, action: str) -> bool | None:
        """Return whether a line of the grid that the player sees spells a listed word.

        True for the last word, None for a right line before it, and where the words are not listed.
        """
        from gem_envs._games.word_search_second_solver import listed, spelled

        self._require_running("verify")
        move = next((move for box in self.find(action) if (move := self.parse(box.strip()))), None)
        words = listed(self.board())
        if move is None or words is None:
            return None
        if len(move) != 4 or min(move) < 0 or spelled(self.board(), move) not in words:
            return False
        return True if len(words) == 1 else None

    # -- plumbing -----------------------------------------------------------------------------

    def _draw_words(self, hardcore: bool, num_words: int) -> list[str]:
        """Return distinct words, if possible none of them within another."""
        drawn: list[str] = []
        spare: list[str] = []
        for text in self.random.sample(_pool(hardcore), 4 * num_words):
            within = any(text in other or other in text for other in drawn)
            (spare if within else drawn).append(text)
        return [*drawn, *spare][:num_words]

    def _place(self) -> tuple[list[list[int]], dict[int, str]]:
        """Return a line for each word, and the letters that these lines put into the grid."""
        places: list[list[int]] = []
        letters: dict[int, str] = {}
        for text in self.hidden:
            for _ in range(_TRIES):
                line = self._draw_line(len(text))
                spelled = list(zip(_line(line, self.side), text, strict=True))
                if all(letters.get(cell, letter) == letter for cell, letter in spelled):
                    places.append(line)
                    letters.update(spelled)
                    break
            else:  # one row per word always fits
                places = [[row, 0, row, len(other) - 1] for row, other in enumerate(self.hidden)]
                cells = [_line(line, self.side) for line in places]
                return places, dict(zip(chain(*cells), "".join(self.hidden), strict=True))
        return places, letters

    def _draw_line(self, length: int) -> list[int]:
        along = self.random.randrange(self.side - length + 1)
        across = self.random.randrange(self.side)
        end = along + length - 1
        return [across, along, across, end] if self.random.random() < 0.5 else [along, across, end, across]


def _line(line: list[int], side: int) -> range:
    """Return the cells from the first end of a line to the last."""
    row, col, last_row, last_col = line
    step = 1 if row == last_row else side
    return range(row * side + col, last_row * side + last_col + 1, step)


@cache
def _pool(hardcore: bool) -> tuple[str, ...]:
    grade: WordRarity = "rare" if hardcore else "common"
    return tuple(text for length in _LENGTHS[hardcore] for text in words(grade, length))
