"""Lay out words so that they cross, as in a crossword."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple, TypeAlias

_LAYOUTS = 5
"""Number of layouts to try before words that cross nothing are placed below the others."""

Cells: TypeAlias = dict[tuple[int, int], str]


class Placed(NamedTuple):
    """A word in the grid, at the position of its first letter."""

    word: str
    row: int
    col: int
    across: bool

    def cells(self) -> list[tuple[int, int]]:
        """Return the cells of its letters."""
        down, right = (0, 1) if self.across else (1, 0)
        return [(self.row + i * down, self.col + i * right) for i in range(len(self.word))]


def place_words(random: Random, words: Sequence[str], num_words: int, most_cells: int) -> list[Placed]:
    """Place `num_words` of the words, with at most `most_cells` letters.

    Each word crosses an earlier one if possible, and adjacent letters always belong to a common word. There
    must be `num_words` words of at most 4 letters, and 4 cells for each.
    """
    best: list[Placed] = []
    for _ in range(_LAYOUTS):
        layout = _grow(random, words, num_words, most_cells)
        if len(layout) > len(best):
            best = layout
        if len(best) == num_words:
            break
    short = [word for word in words if len(word) <= 4 and word not in {placed.word for placed in best}]
    while len(best) < num_words:
        low = 2 + max(max(cell) for placed in best for cell in placed.cells())
        best.append(Placed(short.pop(), low, 0, True))
    top = min(placed.row for placed in best)
    left = min(placed.col for placed in best)
    moved = [placed._replace(row=placed.row - top, col=placed.col - left) for placed in best]
    return sorted(moved, key=lambda placed: (placed.row, placed.col, not placed.across))


def _grow(random: Random, words: Sequence[str], num_words: int, most_cells: int) -> list[Placed]:
    layout: list[Placed] = []
    cells: Cells = {}
    for word in random.sample(words, min(len(words), 40 * num_words)):
        room = most_cells - 4 * (num_words - len(layout) - 1)  # reserve 4 cells for each other word
        if layout:
            options = _crossings(word, layout, cells)
            if not options:
                continue
            chosen = random.choice(options)
        else:
            chosen = Placed(word, 0, 0, random.random() < 0.5)
        letters = dict(zip(chosen.cells(), word, strict=True))
        if len(cells.keys() | letters.keys()) > room:
            continue
        cells.update(letters)
        layout.append(chosen)
        if len(layout) == num_words:
            break
    return layout


def _crossings(word: str, layout: list[Placed], cells: Cells) -> list[Placed]:
    """Return all places where a word may cross another word of the layout."""
    options = []
    for placed in layout:
        for row, col in placed.cells():
            for at, letter in enumerate(word):
                if letter == cells[row, col]:
                    across = not placed.across
                    start = (row, col - at) if across else (row - at, col)
                    option = Placed(word, *start, across)
                    if _fits(option, cells):
                        options.append(option)
    return options


def _fits(option: Placed, cells: Cells) -> bool:
    """Return whether a word agrees with the existing letters and touches no others."""
    down, right = (0, 1) if option.across else (1, 0)
    places = option.cells()
    (first_row, first_col), (last_row, last_col) = places[0], places[-1]
    if (first_row - down, first_col - right) in cells or (last_row + down, last_col + right) in cells:
        return False
    if any(a in cells and b in cells for a, b in pairwise(places)):  # it would contain a shorter word
        return False
    for (row, col), letter in zip(places, option.word, strict=True):
        present = cells.get((row, col))
        if present is None:
            if (row + right, col + down) in cells or (row - right, col - down) in cells:
                return False
        elif present != letter:
            return False
    return True
