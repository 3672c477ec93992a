"""Searches by name."""

from __future__ import annotations

import json
import threading
from typing import Any

from gem_core._util.entry_points import check_arguments, load_attribute
from gem_core._util.registry import Registry
from gem_core._util.threads import after_fork
from gem_core.tools.search.searcher import Searcher

_backends: Registry[str] = Registry("search backend")
for _name, _entry_point in {
    "bm25": "gem_core.tools.search.bm25:open_bm25",
    "dense": "gem_core.tools.search.dense:open_dense",
    "server": "gem_core.tools.search.remote:RetrievalServer",
    "serpapi": "gem_core.tools.search.remote:SerpApi",
    "google": "gem_core.tools.search.remote:GoogleSearch",
}.items():
    _backends.register(_name, _entry_point)

_shared: dict[str, Searcher] = {}
_lock = threading.Lock()


def open_searcher(backend: str = "bm25", **options: Any) -> Searcher:
    """A search of your own; close it after use.

    Args:
        backend: "bm25", "dense", "server", "serpapi" or "google".
        options: Of the backend, such as ``corpus="multihop"`` or ``url="http://localhost:8000"``.

    Raises:
        UnknownName: No such backend.
        TypeError: An option that the backend does not have.
        ConfigError: A value that cannot be honoured, or a key that is missing.
        MissingDependency: A package is missing.
    """
    factory = load_attribute(f"search {backend!r}", _backends.get(backend))
    check_arguments(f"search {backend!r}", factory, options)
    searcher: Searcher = factory(**options)
    return searcher


def shared_searcher(backend: str, **options: Any) -> Searcher:
    """The one search of this process with these options; it lives until `close_searchers`.

    Raises:
        As `open_searcher`.
    """
    key = json.dumps([backend, options], sort_keys=True, default=str)
    with _lock:
        if key not in _shared:
            _shared[key] = open_searcher(backend, **options)
        return _shared[key]


def close_searchers() -> None:
    """Close the shared searches of this process; the next use opens them anew."""
    with _lock:
        while _shared:
            _shared.popitem()[1].close()


def _forget() -> None:
    """In a forked child: threads and connections are the parent's."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


after_fork(_forget)
