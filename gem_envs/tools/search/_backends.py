"""Registry of search backends."""

from __future__ import annotations

import json
from typing import Any

from gem_core._util.entry_points import check_arguments, load_attribute
from gem_core._util.forks import ForkSafeLock, after_fork
from gem_core._util.registry import Registry
from gem_envs.tools.search._searcher import Searcher

_backends: Registry[str] = Registry("search backend")
for _name, _entry_point in {
    "bm25": "gem_envs.tools.search._bm25:open_bm25",
    "dense": "gem_envs.tools.search._dense:open_dense",
    "server": "gem_envs.tools.search._remote:RetrievalServer",
    "serpapi": "gem_envs.tools.search._remote:SerpApi",
    "google": "gem_envs.tools.search._remote:GoogleSearch",
}.items():
    _backends.register(_name, _entry_point)

_shared: dict[str, Searcher] = {}
_lock = ForkSafeLock()


def open_searcher(backend: str = "bm25", **options: Any) -> Searcher:
    """Return a new searcher, which the caller closes after use.

    Args:
        backend: "bm25", "dense", "server", "serpapi", or "google".
        options: Options of the backend, such as ``corpus="multihop"`` or ``url="http://localhost:8000"``.

    Raises:
        UnknownName: There is no such backend.
        TypeError: The backend has no such option.
        ConfigError: The value of an option is not supported, or an API key is missing.
        MissingDependency: A package is not installed.
    """
    factory = load_attribute(f"search {backend!r}", _backends.get(backend))
    check_arguments(f"search {backend!r}", factory, options)
    searcher: Searcher = factory(**options)
    return searcher


def shared_searcher(backend: str, **options: Any) -> Searcher:
    """Return the searcher that this process shares for these options; it stays open until `close_searchers`.

    Raises the same errors as `open_searcher`.
    """
    key = json.dumps([backend, options], sort_keys=True, default=str)
    with _lock:
        if key not in _shared:
            _shared[key] = open_searcher(backend, **options)
        return _shared[key]


def close_searchers() -> None:
    """Close the shared searchers of this process; the next use opens new ones."""
    with _lock:
        while _shared:
            _shared.popitem()[1].close()


after_fork(_shared.clear)  # their threads and connections belong to the parent
