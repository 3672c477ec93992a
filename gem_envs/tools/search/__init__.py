"""Search over documents: a local index, a server, or a web search API.

    from gem_envs.tools.search import open_searcher

    with open_searcher("bm25", corpus="multihop") as searcher:
        for hit in searcher.search("Who is the mayor of Bemburg?", k=3):
            print(hit.score, hit.document["title"])

`read_corpus` reads documents, `build_bm25` makes an index on disk, and `SearchServer` makes a search
available over HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names
from gem_envs.tools.search._backends import open_searcher
from gem_envs.tools.search._corpus import Document, read_corpus
from gem_envs.tools.search._searcher import Hit, Searcher

if TYPE_CHECKING:
    from gem_envs.tools.search._bm25 import build_bm25
    from gem_envs.tools.search._server import SearchServer

__all__ = [
    "Document",
    "Hit",
    "SearchServer",
    "Searcher",
    "build_bm25",
    "open_searcher",
    "read_corpus",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs.tools.search._bm25": ["build_bm25"],
        "gem_envs.tools.search._server": ["SearchServer"],
    },
)
