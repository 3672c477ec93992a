"""A player of Hangman: of the words that fit, the letter that splits them best, or the last one left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from string import ascii_lowercase

from gem_core.envs.games.words import Grade, words

_WEIGHED = 300
"""Words, from all over the alphabet, on which the letters are weighed."""


@lru_cache(maxsize=1024)
def fitting(grade: Grade, shown: str, letters: str, wrong: tuple[str, ...]) -> tuple[str, ...]:
    """The hidden words that agree with what is known.

    Args:
        grade: Where the hidden word comes from.
        shown: The word with ``_`` for each hidden letter.
        letters: Letters that were guessed.
        wrong: Words that were guessed.
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
    """A letter, or a word when no more than two are left."""
    if len(candidates) < 3:
        return candidates[0]
    weighed = candidates[:: -(-len(candidates) // _WEIGHED)]
    return min(
        (letter for letter in ascii_lowercase if letter not in letters),
        key=lambda letter: _expected_left(weighed, letter),
    )


def _expected_left(candidates: Sequence[str], letter: str) -> float:
    """How many words are left after the letter, on average; a little less where it is in the word."""
    groups = Counter(
        tuple([place for place, other in enumerate(word) if other == letter]) for word in candidates
    )
    missed = groups.get((), 0)
    return sum(count * count for count in groups.values()) + missed / 2
