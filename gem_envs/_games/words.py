"""The bundled English words, by frequency grade and length."""

from __future__ import annotations

from functools import cache
from typing import Literal, TypeAlias, get_args

from gem_envs._games.data import read_lines

WordRarity: TypeAlias = Literal["common", "rare", "other", "never-hidden"]


@cache
def words(grade: WordRarity, length: int) -> tuple[str, ...]:
    """Return the words of a grade in alphabetical order.

    Lengths are 3 to 10, for ``other`` and ``never-hidden`` 3 to 6. Words of the last grade are on a list of
    offensive words, which also contains words such as ``dog``: no game hides them, but they are accepted as
    guesses.
    """
    return _by_length(grade).get(length, ())


@cache
def dictionary(length: int) -> frozenset[str]:
    """Return the words of all grades."""
    return frozenset(word for grade in get_args(WordRarity) for word in words(grade, length))


@cache
def _by_length(grade: WordRarity) -> dict[int, tuple[str, ...]]:
    lines = [tuple(line.split()[1:]) for line in read_lines("words.txt") if line.startswith(grade)]
    return {len(line[0]): line for line in lines}
