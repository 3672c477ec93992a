"""`Searcher`, the base class of all searches, with its threads and its cache."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from gem_core._util.checks import check_int
from gem_core._util.closing import Closing
from gem_core._util.forks import ForkSafeLock
from gem_core._util.threads import ThreadPool
from gem_envs.tools.search._corpus import Document
from gem_envs.tools.search._sharing import SharedCalls

_Key: TypeAlias = tuple[str, int]
"""A query, and the number of documents."""


class Hit(NamedTuple):
    """A document found by a search, with its score."""

    document: Document
    score: float
    """Higher is better; scores of different searches are not comparable."""


class Searcher(Closing):
    """Base class of searches; a subclass overrides `find`.

    A searcher may be used from any thread and any event loop. Concurrent callers with the same query share
    one search. A search that nobody waits for anymore does not start, or ends at its next wait.

    Args:
        concurrency: Maximum number of concurrent searches; others wait.
        cache: Number of cached results, of which the least recently used is dropped first; 0 disables the
            cache.
        cache_seconds: Seconds for which a result is cached. None means forever.
    """

    def __init__(self, concurrency: int = 8, cache: int = 0, cache_seconds: float | None = None) -> None:
        for name, value, minimum in (("concurrency", concurrency, 1), ("cache", cache, 0)):
            check_int(name, value, minimum)
        self.concurrency = concurrency
        self._cache = _Cache(cache, cache_seconds) if cache else None
        self._threads = ThreadPool(concurrency, "gem-search")
        self._searches: SharedCalls[_Key, list[Hit]] = SharedCalls(lambda: self._threads)

    def find(self, query: str, k: int) -> list[Hit]:
        """Return at most `k` documents, best first.

        Raises:
            ServiceError: A server does not answer, or its answer is invalid.
        """
        raise NotImplementedError

    def search(self, query: str, k: int = 3) -> list[Hit]:
        """Return the result of `find`, from the cache if possible."""
        hits = self._kept(query, k)
        return list(self._searches.result((query, k), self._find(query, k)) if hits is None else hits)

    async def asearch(self, query: str, k: int = 3) -> list[Hit]:
        """Return what `search` returns."""
        hits = self._kept(query, k)
        return list(await self._searches.outcome((query, k), self._find(query, k)) if hits is None else hits)

    def close(self) -> None:
        """Release the threads and connections. May be called more than once."""
        threads, self._threads = self._threads, ThreadPool(self.concurrency, "gem-search")
        threads.shutdown(wait=False, cancel_futures=True)

    def _kept(self, query: str, k: int) -> list[Hit] | None:
        return None if self._cache is None else self._cache.get((query, k))

    def _find(self, query: str, k: int) -> Callable[[], list[Hit]]:
        def find() -> list[Hit]:
            hits = self.find(query, k)
            if self._cache is not None:
                self._cache.keep((query, k), hits)
            return hits

        return find


class _Cache:
    """The last results by query."""

    def __init__(self, size: int, seconds: float | None) -> None:
        self._size, self._seconds = size, seconds
        self._kept: OrderedDict[_Key, tuple[float, list[Hit]]] = OrderedDict()
        self._lock = ForkSafeLock()

    def get(self, key: _Key) -> list[Hit] | None:
        """Return a result; None if there is none, or it is too old."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or (self._seconds is not None and time.monotonic() - kept[0] > self._seconds):
                return None
            self._kept.move_to_end(key)
            return kept[1]

    def keep(self, key: _Key, hits: list[Hit]) -> None:
        with self._lock:
            self._kept[key] = time.monotonic(), hits
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
