"""`Searcher`, the base class of all searches, with its threads and its cache."""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from gem_core._util.checks import check_int
from gem_core._util.closing import Closing
from gem_core._util.threads import ThreadPool, call_in
from gem_core.tools.search.corpus import Document


class Hit(NamedTuple):
    """A document found by a search, with its score."""

    document: Document
    score: float
    """Higher is better; scores of different searches are not comparable."""


class Searcher(Closing):
    """Base class of searches; a subclass overrides `find`.

    A searcher may be used from any thread and any event loop.

    Args:
        concurrency: Maximum number of concurrent searches of `asearch`; others wait.
        cache: Number of cached results, of which the least recently used is dropped first; 0 disables the
            cache. Concurrent callers with the same query share one search.
        cache_seconds: Seconds for which a result is cached. None means forever.
    """

    def __init__(self, concurrency: int = 8, cache: int = 0, cache_seconds: float | None = None) -> None:
        for name, value, least in (("concurrency", concurrency, 1), ("cache", cache, 0)):
            check_int(name, value, least)
        self.concurrency = concurrency
        self._cache = _Cache(cache, cache_seconds) if cache else None
        self._threads = ThreadPool(concurrency, "gem-search")

    def find(self, query: str, k: int) -> list[Hit]:
        """Return at most `k` documents, best first.

        Raises:
            ServiceError: A server does not answer, or its answer is invalid.
        """
        raise NotImplementedError

    def search(self, query: str, k: int = 3) -> list[Hit]:
        """Return the result of `find`, from the cache if possible."""
        if self._cache is None:
            return self.find(query, k)
        return self._cache.get((query, k), lambda: self.find(query, k))

    async def asearch(self, query: str, k: int = 3) -> list[Hit]:
        """Run `search` in a thread of this searcher."""
        return await call_in(self._threads, functools.partial(self.search, query, k))

    def close(self) -> None:
        """Release the threads and connections. May be called more than once."""
        threads, self._threads = self._threads, ThreadPool(self.concurrency, "gem-search")
        threads.shutdown(wait=False, cancel_futures=True)


class _Cache:
    """Results by query, each computed once; failures are not cached."""

    def __init__(self, size: int, seconds: float | None) -> None:
        self._size, self._seconds = size, seconds
        self._kept: OrderedDict[tuple[str, int], tuple[float, Future[list[Hit]]]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int], find: Callable[[], list[Hit]]) -> list[Hit]:
        now = time.monotonic()
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and (self._seconds is None or now - kept[0] <= self._seconds):
                self._kept.move_to_end(key)
                future, mine = kept[1], False
            else:
                future, mine = Future(), True
                self._kept[key] = now, future
                self._kept.move_to_end(key)
                while len(self._kept) > self._size:
                    self._kept.popitem(last=False)
        if mine:
            try:
                future.set_result(find())
            except BaseException as error:
                with self._lock:
                    if self._kept.get(key, (0.0, None))[1] is future:
                        del self._kept[key]
                future.set_exception(error)
        return list(future.result())
