"""What the games on a grid share: directions."""

from __future__ import annotations

DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
"""Rows and columns that a move goes."""

OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
