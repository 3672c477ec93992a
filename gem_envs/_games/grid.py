"""Code that games on a grid share: directions, and the numbers around a board."""

from __future__ import annotations

from functools import lru_cache

DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""Change of row and column, by direction."""

OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


@lru_cache(maxsize=256)
def numbered_template(rows: int, cols: int) -> str:
    """Return the template of a board: a %s for each cell, with row and column numbers around them."""
    width = len(str(max(rows, cols) - 1))
    head = " " * width + "  " + " ".join(f"{col:>{width}}" for col in range(cols))
    line = f" %{width}s" * cols
    return "\n".join([head, *(f"{row:>{width}} {line}" for row in range(rows))])
