"""Second solver of word searches: reads the grid and the listed words as text."""

from __future__ import annotations

import re
from collections.abc import Sequence


def spelled(board: str, line: Sequence[int]) -> str | None:
    """Return the letters from one end of a line to the other, in lower case; None if it leaves the grid.

    Args:
        board: The grid with the numbers of rows and columns, and other lines below it.
        line: Row and column of the first letter, then of the last one, from 0.
    """
    rows = [
        found[1].split()
        for text in board.splitlines()
        if (found := re.fullmatch(r" *\d+((?: +[a-zA-Z])+)", text))
    ]
    (row, col), (last_row, last_col) = sorted((tuple(line[:2]), tuple(line[2:])))
    columns = [list(letters) for letters in zip(*rows, strict=True)]
    if row == last_row and row < len(rows) and last_col < len(columns):
        return "".join(rows[row][col : last_col + 1]).lower()
    if col == last_col and col < len(columns) and last_row < len(rows):
        return "".join(columns[col][row : last_row + 1]).lower()
    return None


def listed(board: str) -> list[str] | None:
    """Return the words that are left; None if only their lengths are shown."""
    found = re.search(r"^Words left: (.*)\.$", board, re.MULTILINE)
    words = [] if found is None else found[1].split(", ")
    return None if any(re.fullmatch(r"\d+ letters", word) for word in words) else words
