"""`SearchTool`: a search that a model can call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gem_chat.tools import Tool, ToolResult, ToolState
from gem_core._util.checks import check_int
from gem_core.errors import ConfigError, ServiceError
from gem_envs.tools.search._backends import shared_searcher
from gem_envs.tools.search._searcher import Hit

LONGEST_QUERY = 2000
"""Number of characters of a query that are used."""


class SearchTool(Tool):
    """Finds documents and shows them to the model.

    The searcher is opened once per process and shared by all environments. Examples:

        tools(tools="search(corpus='multihop', k=3)")
        tools(tools="search(backend='server', url='http://localhost:8000')")
        tools(tools="search(backend='google')")

    Args:
        backend: ``bm25``, ``dense``, ``server``, ``serpapi``, or ``google``. None uses ``bm25`` with a
            `corpus`, and otherwise the server at the URL in the environment variable ``SEARCH_URL``.
        k: Number of documents that a search returns.
        max_chars: Maximum number of characters of a document that are shown.
        name: Name by which the model calls the tool.
        options: Options of the backend, such as ``corpus=`` or ``url=``. The `url` of ``server`` defaults to
            ``SEARCH_URL``.

    Raises:
        ConfigError: A value is not supported, or there is neither a corpus nor a server to search.
        TypeError: The backend has no such option.
    """

    def __init__(
        self,
        backend: str | None = None,
        k: int = 3,
        max_chars: int = 2000,
        name: str = "search",
        **options: Any,
    ) -> None:
        for argument, value in (("k", k), ("max_chars", max_chars)):
            check_int(argument, value, 1)
        if backend is None:
            backend = "bm25" if "corpus" in options else "server"
        if backend == "server" and "url" not in options:
            options["url"] = _server_url()
        elif backend in ("bm25", "dense") and "corpus" not in options:
            raise ConfigError(
                f"search(backend={backend!r}) needs a corpus, such as corpus='notes.jsonl', or "
                "corpus='multihop' for the documents of qa:MultiHop-v0-search"
            )
        self.name = name
        where = "the web" if backend in ("serpapi", "google") else "a collection of documents"
        self.description = f"Searches {where} and shows the {k} best results."
        self.parameters = {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "what to look for",
                    "examples": ["tallest mountain of Africa"],
                }
            },
            "required": ["query"],
        }
        self.k, self.max_chars = k, max_chars
        self._how = backend, options
        shared_searcher(backend, **options)  # raises for a wrong option

    async def call(self, arguments: Mapping[str, Any], state: ToolState) -> ToolResult:
        query = str(arguments["query"]).strip()[:LONGEST_QUERY]
        if not query:
            return ToolResult("The query is empty. Enter what to look for.", ok=False)
        backend, options = self._how
        try:
            hits = await shared_searcher(backend, **options).asearch(query, self.k)
        except ServiceError as error:
            return ToolResult(f"The search failed: {error}", ok=False, metadata={"hits": 0})
        metadata = {"hits": len(hits), "ids": [hit.document["id"] for hit in hits]}
        return ToolResult(as_text(hits, self.max_chars) or "Nothing was found.", metadata=metadata)


def _server_url() -> str:
    """Return the URL in ``SEARCH_URL``, the variable that GEM reads."""
    url = os.environ.get("SEARCH_URL", "")
    if not url:
        raise ConfigError(
            "the search tool has nothing to search: set the environment variable SEARCH_URL to a retrieval "
            "server, such as http://localhost:8000/retrieve, or use tools=\"search(url='http://...')\", "
            "tools=\"search(corpus='notes.jsonl')\" for your own documents, or "
            "tools=\"search(corpus='multihop')\" for the documents of qa:MultiHop-v0-search"
        )
    return url


def as_text(hits: list[Hit], max_chars: int) -> str:
    """Format the documents, each with its number and title."""
    entries = []
    for number, hit in enumerate(hits, start=1):
        title, text = hit.document["title"], hit.document["text"]
        cut = text if len(text) <= max_chars else text[:max_chars] + " ..."
        entries.append(f"[{number}] {title}\n{cut}" if title else f"[{number}] {cut}")
    return "\n\n".join(entries)
