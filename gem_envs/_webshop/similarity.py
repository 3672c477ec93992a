"""Similarity of two short phrases, independent of word order."""

from __future__ import annotations

from gem_envs.tools.search._words import runs


def token_set_ratio(one: str, other: str) -> float:
    """Return the best ratio, 0 to 100, among the shared words and both phrases.

    It is 100 if one phrase contains all words of the other. Fuzzy-matching libraries use the same name for
    this measure.
    """
    left, right = _tokens(one), _tokens(other)
    if not left or not right:
        return 0.0
    shared = sorted(left & right)
    if shared and (left <= right or right <= left):
        return 100.0
    common = " ".join(shared)
    first = " ".join(filter(None, (common, *sorted(left - right))))
    second = " ".join(filter(None, (common, *sorted(right - left))))
    best = ratio(first, second)
    if common:
        best = max(best, ratio(common, first), ratio(common, second))
    return best


def ratio(one: str, other: str) -> float:
    """Return twice the length of the longest common subsequence over both lengths, 0 to 100."""
    both = len(one) + len(other)
    return 200.0 * common_length(one, other) / both if both else 100.0


def common_length(one: str, other: str) -> int:
    """Return the length of the longest common subsequence, with each row of the table as bits of an int."""
    places: dict[str, int] = {}
    for place, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << place
    row = full = (1 << len(one)) - 1
    for letter in other:
        matches = row & places.get(letter, 0)
        row = (row + matches | row - matches) & full
    return len(one) - bin(row).count("1")


def _tokens(text: str) -> set[str]:
    return set(runs(text))
