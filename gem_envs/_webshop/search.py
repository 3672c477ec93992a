"""BM25 over short texts, by bm25s."""

from __future__ import annotations

from collections.abc import Iterable

import bm25s
import numpy as np

from gem_envs.tools.search import _words as split

_LONGEST = 2000
"""Maximum number of characters of a query."""
_DULL = frozenset(
    "a an and are as at be but by for from i if in into is it me my no not of on or our such that the "  # noqa: SIM905
    "their then there these they this to was we will with you your".split()
)


class Search:
    """An index of texts.

    Args:
        texts: The texts to search; a result is a position in this list.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._index = bm25s.BM25(k1=0.9, b=0.4)  # as in WebShop's engine
        self._index.index([words(text) for text in texts], show_progress=False)

    def best(self, query: str, limit: int) -> list[int]:
        """Return the positions of the best matches, best first, without texts that share no word."""
        terms = _plain(split.query_words(query[:_LONGEST]))
        if not terms:
            return []
        scores = self._index.get_scores(terms)
        order = np.argsort(-scores, kind="stable")[:limit]
        return [int(place) for place in order if scores[place] > 0]


def words(text: str) -> list[str]:
    """Return the words of a text as in `gem_envs.tools.search._words`, without stop words and plural s."""
    return _plain(split.words(text))


def _plain(all_words: Iterable[str]) -> list[str]:
    return [_singular(word) for word in all_words if word not in _DULL]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] not in "sui" else word
