"""Search over documents: a local index, a server, or a web search API.

    from gem_envs.tools.search import open_searcher

    with open_searcher("bm25", corpus="multihop") as searcher:
        for hit in searcher.search("Who is the mayor of Bemburg?", k=3):
            print(hit.score, hit.document["title"])

`corpus` reads documents, `bm25` and `dense` are indexes on disk, `remote` queries servers, `server` makes a
search available over HTTP, and `tool` makes it available to a model.
"""

from __future__ import annotations

from gem_envs.tools.search.backends import open_searcher
from gem_envs.tools.search.corpus import Document
from gem_envs.tools.search.searcher import Hit, Searcher

__all__ = ["Document", "Hit", "Searcher", "open_searcher"]
