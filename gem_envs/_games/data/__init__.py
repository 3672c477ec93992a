"""The data that games ship with, read once per process."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def read_lines(name: str) -> tuple[str, ...]:
    """Return the lines of a data file that are not empty; a line that begins with # is a comment."""
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))
