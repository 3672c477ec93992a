"""A player of Hangman: guesses the letter that best splits the matching words, or the last matching word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from string import ascii_lowercase

from gem_core.envs.games.words import Grade, words

_WEIGHED = 300
"""Number of matching words, spread over the alphabet, on which letters are evaluated."""


@lru_cache(maxsize=1024)
def fitting(grade: Grade, shown: str, letters: str, wrong: tuple[str, ...]) -> tuple[str, ...]:
    """Return the possible hidden words.

    Args:
        grade: Grade of the hidden word.
        shown: The word with ``_`` for each hidden letter.
        letters: Guessed letters.
        wrong: Guessed words.
    """
    return tuple(
        word
        for word in words(grade, len(shown))
        if all(
            letter == seen if seen != "_" else letter not in letters
            for letter, seen in zip(word, shown, strict=True)
        )
        and word not in wrong
    )


def best_guess(candidates: Sequence[str], letters: str) -> str:
    """Return a letter, or a word if at most two are left."""
    if len(candidates) < 3:
        return candidates[0]
    weighed = candidates[:: -(-len(candidates) // _WEIGHED)]
    return min(
        (letter for letter in ascii_lowercase if letter not in letters),
        key=lambda letter: _expected_left(weighed, letter),
    )


def _expected_left(candidates: Sequence[str], letter: str) -> float:
    """Return the mean number of words left after the letter, a little less if it is in the word."""
    groups = Counter(
        tuple([place for place, other in enumerate(word) if other == letter]) for word in candidates
    )
    missed = groups.get((), 0)
    return sum(count * count for count in groups.values()) + missed / 2
