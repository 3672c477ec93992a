"""A player of Hangman: guesses the letter that best splits the matching words, or the last matching word."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from string import ascii_lowercase

from gem_envs._games.words import WordRarity, words

_WEIGHED = 300
"""Number of matching words, spread over the alphabet, on which letters are evaluated."""


@lru_cache(maxsize=1024)
def fitting(grade: WordRarity, shown: str, letters: str, wrong: tuple[str, ...]) -> tuple[str, ...]:
    """Return the possible hidden words.

    Args:
        grade: Grade of the hidden word.
        shown: The word with ``_`` for each hidden letter.
        letters: Guessed letters.
        wrong: Guessed words.
    """
    hidden = f"[^{letters}]" if letters else "."
    fits = re.compile(shown.replace("_", hidden), re.DOTALL).fullmatch
    return tuple(word for word in words(grade, len(shown)) if fits(word) and word not in wrong)


def best_guess(candidates: Sequence[str], letters: str) -> str:
    """Return a letter, or a word if at most two are left."""
    if len(candidates) < 3:
        return candidates[0]
    weighed = candidates[:: -(-len(candidates) // _WEIGHED)]
    groups: dict[str, dict[int, int]] = {letter: {} for letter in ascii_lowercase if letter not in letters}
    for word in weighed:
        for letter, places in _places(word):
            if letter in groups:
                sizes = groups[letter]
                sizes[places] = sizes.get(places, 0) + 1
    return min(groups, key=lambda letter: _expected_left(len(weighed), groups[letter].values()))


@lru_cache(maxsize=20_000)
def _places(word: str) -> tuple[tuple[str, int], ...]:
    """Return each letter of a word with its places, one bit per place."""
    places: dict[str, int] = {}
    for place, letter in enumerate(word):
        places[letter] = places.get(letter, 0) | 1 << place
    return tuple(places.items())


def _expected_left(total: int, sizes: Collection[int]) -> float:
    """Return the mean number of words left after a letter, a little less if it is in the word.

    Args:
        total: Number of words.
        sizes: Numbers of words that have the letter in the same places.
    """
    missed = total - sum(sizes)
    return sum(size * size for size in sizes) + missed * missed + missed / 2
