"""The marks of Wordle, and a player whose guesses are consistent with all of them."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from gem_envs._games.words import words

GuessHistory: TypeAlias = tuple[tuple[str, str], ...]
"""Guesses, each with its marks."""
_TRIED, _TOLD_APART = 40, 120
"""Number of words evaluated as a guess, and number of words to evaluate them on."""


def marks(guess: str, secret: str) -> str:
    """Return G for a letter in place, Y for one elsewhere in the word (as often as it occurs), else -."""
    result, rest = [], []
    for letter, other in zip(guess, secret, strict=True):
        if letter == other:
            result.append("G")
        else:
            result.append("-")
            rest.append(other)
    for place, letter in enumerate(guess):
        if letter in rest and result[place] == "-":
            result[place] = "Y"
            rest.remove(letter)
    return "".join(result)


@lru_cache(maxsize=1024)
def best_guess(length: int, history: GuessHistory) -> str:
    """Return the possible hidden word that best distinguishes the others."""
    left = _left(length, history)
    if len(left) < 3:
        return left[0]
    tried, told_apart = _spread(left, _TRIED), _spread(left, _TOLD_APART)
    return max(tried, key=lambda guess: len({marks(guess, secret) for secret in told_apart}))


@lru_cache(maxsize=1024)
def _left(length: int, history: GuessHistory) -> tuple[str, ...]:
    """Return the hidden words that are consistent with every mark."""
    if not history:
        return words("common", length)
    *earlier, (guess, marked) = history
    return tuple(word for word in _left(length, tuple(earlier)) if marks(guess, word) == marked)


def _spread(pool: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return about `count` words spread over the pool."""
    return pool[:: -(-len(pool) // count)]
