"""The bundled English words, by frequency grade and length."""

from __future__ import annotations

from functools import cache
from typing import Literal, TypeAlias

from gem_core.envs.games.data import read_lines

Grade: TypeAlias = Literal["common", "rare", "other"]


@cache
def words(grade: Grade, length: int) -> tuple[str, ...]:
    """Return the words of a grade in alphabetical order; lengths are 3 to 10, for ``other`` 3 to 6."""
    return _by_length(grade).get(length, ())


@cache
def dictionary(length: int) -> frozenset[str]:
    """Return the words of all grades."""
    return frozenset((*words("common", length), *words("rare", length), *words("other", length)))


@cache
def _by_length(grade: Grade) -> dict[int, tuple[str, ...]]:
    lines = [tuple(line.split()[1:]) for line in read_lines("words.txt") if line.startswith(grade)]
    return {len(line[0]): line for line in lines}
