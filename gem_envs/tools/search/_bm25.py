"""BM25 index on disk: built once, memory-mapped, and shared by every process that opens it.

The weights are those of Lucene's BM25, computed by the package ``bm25s``; querying the index needs only
numpy. A search processes the rare words of a query first and skips documents that can no longer be among the
best, so words like "the" cost little. The result is the same as without skipping.
"""

from __future__ import annotations

import bisect
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gem_core._util.places import Places
from gem_core.errors import ConfigError, DataError, MissingDependency
from gem_envs.tools.search._corpus import Document, fingerprint, read_corpus
from gem_envs.tools.search._documents import Documents, write_documents
from gem_envs.tools.search._folders import (
    build_once,
    cache_folder,
    open_cached,
    read_facts,
    reading,
    write_facts,
)
from gem_envs.tools.search._searcher import Hit, Searcher
from gem_envs.tools.search._words import query_words, words

Indices = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]

VERSION = 3
_LONGEST = 20_000
"""Number of characters of a query that are used."""
_AT_ONCE = min(8, os.cpu_count() or 1)
"""Number of concurrent searches; each one uses a core and four bytes per document."""
_COMMON = 4096
"""Number of documents with a word above which it is worth checking whether the word can still matter."""


class Bm25Index(Searcher):
    """A BM25 index on disk.

    Args:
        folder: Folder created by `build_bm25`.
        options: Keyword arguments of `Searcher`.

    Raises:
        DataError: The folder contains no index, or a damaged one.
        OSError: A file cannot be read; the error names it.
    """

    def __init__(self, folder: str | Path, **options: Any) -> None:
        super().__init__(**options)
        self.folder = Path(folder)
        read_facts(self.folder, "bm25", VERSION)
        with reading(self.folder):
            self.documents = Documents(self.folder)
            self._words = _Words(self.folder)
            self._columns = _mapped(self.folder / "columns.npy")
            self._starts = _mapped(self.folder / "starts.npy")
            self._indices = _mapped(self.folder / "indices.npy")
            self._weights = _mapped(self.folder / "weights.npy")
            self._tops = _mapped(self.folder / "tops.npy")
        self._turns = Places(_AT_ONCE)
        self._idle: list[Weights] = []

    def __len__(self) -> int:
        return len(self.documents)

    def find(self, query: str, k: int) -> list[Hit]:
        return [Hit(self.documents[index], score) for index, score in self.best(query, k)]

    def best(self, query: str, k: int) -> list[tuple[int, float]]:
        """Return the indices and scores of the best documents; ties are broken by index."""
        terms = self._terms(query)
        if not terms or k < 1:
            return []
        with self._turns.held():
            scores = self._zeros()
            try:
                return self._best(terms, k, scores)
            finally:
                self._idle.append(scores)

    def _best(self, terms: list[_Term], k: int, scores: Weights) -> list[tuple[int, float]]:
        """Implement `best`; `scores` must be zero for all documents, and is zero again afterwards."""
        indices = np.empty(0, np.int32)
        rest = sum(term.top for term in terms)  # upper bound for a document not seen yet
        try:
            for place, term in enumerate(terms):
                if len(term.indices) >= _COMMON and len(indices) >= k:
                    current = scores[indices]
                    last = np.partition(current, -k)[-k]
                    if last > rest * 1.0001:  # rounding
                        likely = np.sort(indices[current >= last - rest * 1.0001])
                        return _first(likely, _completed(scores[likely], likely, terms[place:]), k)
                indices = np.concatenate([indices, term.indices[scores[term.indices] == 0]])
                scores[term.indices] += term.weights * np.float32(term.times)
                rest -= term.top
            return _first(indices, scores[indices], k)
        finally:
            scores[indices] = 0

    def _terms(self, query: str) -> list[_Term]:
        """Return the entries of a query's words in the index, by descending weight."""
        terms = []
        for word, count in Counter(query_words(query[:_LONGEST])).items():
            place = self._words.find(word)
            if place is not None:
                column = int(self._columns[place])
                part = slice(int(self._starts[column]), int(self._starts[column + 1]))
                top = float(self._tops[column]) * count
                terms.append(_Term(top, count, self._indices[part], self._weights[part]))
        return sorted(terms, key=lambda term: (-term.top, len(term.indices)))

    def _zeros(self) -> Weights:
        """Return an array with a zero for each document, reusing arrays of earlier searches."""
        try:
            return self._idle.pop()
        except IndexError:
            return np.zeros(len(self), np.float32)


class _Term(NamedTuple):
    top: float
    """Upper bound of its contribution to a score."""
    times: int
    """Number of occurrences in the query."""
    indices: Indices
    """Indices of the documents that contain it, ascending."""
    weights: Weights


def _completed(scores: Weights, indices: Indices, terms: Sequence[_Term]) -> Weights:
    """Add the contributions of the remaining words to the scores of some documents."""
    for term in terms:
        places = np.searchsorted(term.indices, indices)
        places[places == len(term.indices)] = 0
        holds = term.indices[places] == indices
        scores += np.where(holds, term.weights[places] * np.float32(term.times), np.float32(0))
    return scores


def _first(indices: Indices, scores: Weights, k: int) -> list[tuple[int, float]]:
    if len(indices) > k:
        last = np.partition(scores, -k)[-k]
        above, equal = scores > last, np.flatnonzero(scores == last)
        equal = equal[np.argsort(indices[equal])][: k - int(above.sum())]
        chosen = np.concatenate([np.flatnonzero(above), equal])
        indices, scores = indices[chosen], scores[chosen]
    order = np.lexsort((indices, -scores))
    return [(int(indices[n]), float(scores[n])) for n in order]


class _Words:
    """The sorted vocabulary on disk, read through memoryviews, whose items are plain Python objects."""

    def __init__(self, folder: Path) -> None:
        self._letters = _mapped(folder / "words.npy").data
        self._ends = _mapped(folder / "word_ends.npy").data

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> bytes:
        return bytes(self._letters[self._ends[place] : self._ends[place + 1]])

    def find(self, word: str) -> int | None:
        key = word.encode("utf-8", "replace")
        place = bisect.bisect_left(self, key)
        return place if place < len(self) and self[place] == key else None


def _mapped(file: Path) -> npt.NDArray[Any]:
    """Memory-map an array as a plain array, because slicing numpy's memmap class is slow."""
    return np.asarray(np.load(file, mmap_mode="r"))


# -- building ---------------------------------------------------------------------------------


def open_bm25(corpus: str | Path, *, k1: float = 1.5, b: float = 0.75, **options: Any) -> Bm25Index:
    """Open the index of a corpus; it is built on first use and kept in the cache folder.

    Args:
        corpus: See `gem_envs.tools.search._corpus`.
        k1: How slowly repetitions of a word in a document stop adding to its score; at least 0.
        b: How strongly scores are corrected for the length of a document, from 0 to 1.
        options: Keyword arguments of `Searcher`.

    Raises:
        ConfigError: There is no such corpus, `k1` or `b` is out of range, or the user has no cache folder.
        DataError: The corpus cannot be read, or holds no words.
        MissingDependency: The index has to be built and ``bm25s`` is missing.
    """
    facts = {"kind": "bm25", "version": VERSION, "k1": k1, "b": b, "corpus": fingerprint(corpus)}
    return open_cached(
        cache_folder("bm25", facts),
        lambda folder: _fill(read_corpus(corpus), folder, k1, b),
        lambda folder: Bm25Index(folder, **options),
    )


def build_bm25(
    documents: Iterable[Document], folder: str | Path, *, k1: float = 1.5, b: float = 0.75
) -> Bm25Index:
    """Build an index in `folder`, which must not exist yet or must already hold an index.

    See `open_bm25` for `k1` and `b`.

    Raises:
        ConfigError: `k1` or `b` is out of range.
        DataError: The documents hold no words, or `folder` holds something else or a damaged index.
        MissingDependency: ``bm25s`` is missing.
    """
    return Bm25Index(build_once(Path(folder), lambda f: _fill(documents, f, k1, b)))


def _fill(documents: Iterable[Document], folder: Path, k1: float, b: float) -> None:
    if not k1 >= 0 or not 0 <= b <= 1:
        raise ConfigError(f"k1={k1}, b={b}: expected k1 >= 0 and b in [0, 1]")
    try:
        import bm25s
    except ModuleNotFoundError as error:
        raise MissingDependency(
            "building a BM25 index needs the package 'bm25s': pip install 'gem-core[search]'"
        ) from error
    vocabulary: dict[str, int] = {}
    rows = list(_numbered(write_documents(documents, folder), vocabulary))
    if not vocabulary:
        raise DataError("the corpus holds no words to search for; check that its documents have text")
    model = bm25s.BM25(method="lucene", k1=k1, b=b, dtype="float32", int_dtype="int32")
    model.index((rows, vocabulary), create_empty_token=False, show_progress=False)
    del rows
    starts = np.asarray(model.scores["indptr"], np.int64)
    weights = np.asarray(model.scores["data"], np.float32)
    indices = np.asarray(model.scores["indices"], np.int32)
    np.save(folder / "starts.npy", starts)
    np.save(folder / "indices.npy", indices)
    np.save(folder / "weights.npy", weights)
    np.save(folder / "tops.npy", np.maximum.reduceat(weights, starts[:-1]))
    _save_words(vocabulary, folder)
    write_facts(folder, {"kind": "bm25", "version": VERSION, "k1": k1, "b": b})


def _numbered(documents: Iterable[Document], vocabulary: dict[str, int]) -> Iterator[array[int]]:
    """Yield the words of each document as indices, adding new words to `vocabulary`."""
    for document in documents:
        tokens = words(f"{document['title']} {document['text']}")
        yield array("i", [vocabulary.setdefault(word, len(vocabulary)) for word in tokens])


def _save_words(vocabulary: dict[str, int], folder: Path) -> None:
    pairs = sorted((word.encode("utf-8", "replace"), column) for word, column in vocabulary.items())
    ends = np.cumsum([0, *(len(word) for word, _ in pairs)])
    np.save(folder / "words.npy", np.frombuffer(b"".join(word for word, _ in pairs), np.uint8))
    np.save(folder / "word_ends.npy", ends.astype(np.int64))
    np.save(folder / "columns.npy", np.array([column for _, column in pairs], np.int32))
