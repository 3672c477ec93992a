"""Search through a server with the retrieval protocol of Search-R1, or through a web search API.

Keys are read from environment variables and never appear in messages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gem_core.errors import ConfigError, ServiceError
from gem_envs.tools._http import HttpClient
from gem_envs.tools.search._corpus import Document, as_document
from gem_envs.tools.search._searcher import Hit, Searcher


class _Remote(Searcher):
    """Base class of searchers that send their queries over HTTP."""

    def __init__(
        self,
        url: str,
        timeout: float,
        retries: int,
        backoff: float,
        concurrency: int,
        cache: int,
        cache_seconds: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(concurrency, cache, cache_seconds)
        self.client = HttpClient(
            url, timeout=timeout, retries=retries, backoff=backoff, connections=concurrency, headers=headers
        )

    def close(self) -> None:
        super().close()
        self.client.close()


class RetrievalServer(_Remote):
    """Client of a server with the retrieval protocol of Search-R1.

    A request is ``POST /retrieve`` with ``{"queries": [...], "topk": 3, "return_scores": true}``; the
    answer is ``{"result": [[{"document": {"id": ..., "contents": ...}, "score": 1.5}, ...], ...]}``.

    Args:
        url: URL of the server, ``http://host:port``, with a path if that is not ``/retrieve``.
        timeout: Time limit of one attempt, in seconds.
        retries: Number of retries after a temporary failure.
        backoff: Seconds before the first retry; doubles with each retry.
        concurrency: Maximum number of concurrent requests.
        cache: Number of cached results; 0 disables the cache.
        cache_seconds: Seconds for which a result is cached. None means forever.
        token: Bearer token. None sends none.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        retries: int = 3,
        backoff: float = 0.25,
        concurrency: int = 8,
        cache: int = 0,
        cache_seconds: float | None = None,
        token: str | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        super().__init__(url, timeout, retries, backoff, concurrency, cache, cache_seconds, headers)
        self._path = "" if url.partition("://")[2].strip("/").count("/") else "/retrieve"

    def find(self, query: str, k: int) -> list[Hit]:
        (hits,) = self.find_all([query], k)
        return hits

    def find_all(self, queries: list[str], k: int) -> list[list[Hit]]:
        """Search for several queries in one request."""
        answer = self.client.post(self._path, {"queries": queries, "topk": k, "return_scores": True})
        results = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(results, list) or len(results) != len(queries):
            raise ServiceError(f"{self.client.where} returned no 'result' for each query")
        return [self._hits(result)[:k] for result in results]

    def _hits(self, result: Any) -> list[Hit]:
        hits = []
        for index, item in enumerate(result if isinstance(result, list) else ()):
            row = item.get("document", item) if isinstance(item, dict) else {"contents": item}
            document = as_document(row, index) if isinstance(row, dict) else None
            if document is None:
                raise ServiceError(f"{self.client.where} returned a document without text")
            score = item.get("score") if isinstance(item, dict) else None
            hits.append(Hit(document, float(score) if isinstance(score, (int, float)) else 1 / (index + 1)))
        return hits


class SerpApi(_Remote):
    """Google's results through SerpApi.

    Args:
        key: API key. None reads ``SERPAPI_API_KEY``.
        url: URL of the service.
        timeout: See `RetrievalServer`, also for the other arguments.
    """

    def __init__(
        self,
        key: str | None = None,
        *,
        url: str = "https://serpapi.com",
        timeout: float = 20.0,
        retries: int = 3,
        backoff: float = 1.0,
        concurrency: int = 4,
        cache: int = 10_000,
        cache_seconds: float | None = None,
    ) -> None:
        super().__init__(url, timeout, retries, backoff, concurrency, cache, cache_seconds)
        self._key = key or _from_environment("SERPAPI_API_KEY", "serpapi")

    def find(self, query: str, k: int) -> list[Hit]:
        answer = self.client.get(
            "/search", {"engine": "google", "q": query, "num": str(k), "output": "json", "api_key": self._key}
        )
        if isinstance(answer, dict) and "error" in answer and "organic_results" not in answer:
            if "hasn't returned any results" in str(answer["error"]):
                return []
            raise ServiceError(f"{self.client.where} rejected the search: {str(answer['error'])[:200]}")
        return _web_hits(answer, "organic_results", k)


class GoogleSearch(_Remote):
    """Google's Custom Search JSON API.

    Args:
        key: API key. None reads ``GOOGLE_API_KEY``.
        engine: Id of the search engine. None reads ``GOOGLE_CSE_ID``.
        url: URL of the service.
        timeout: See `RetrievalServer`, also for the other arguments.
    """

    def __init__(
        self,
        key: str | None = None,
        engine: str | None = None,
        *,
        url: str = "https://www.googleapis.com",
        timeout: float = 20.0,
        retries: int = 3,
        backoff: float = 1.0,
        concurrency: int = 4,
        cache: int = 10_000,
        cache_seconds: float | None = None,
    ) -> None:
        super().__init__(url, timeout, retries, backoff, concurrency, cache, cache_seconds)
        self._key = key or _from_environment("GOOGLE_API_KEY", "google")
        self._engine = engine or _from_environment("GOOGLE_CSE_ID", "google")

    def find(self, query: str, k: int) -> list[Hit]:
        parameters = {"key": self._key, "cx": self._engine, "q": query, "num": str(min(k, 10))}
        return _web_hits(self.client.get("/customsearch/v1", parameters), "items", k)


def _web_hits(answer: Any, field: str, k: int) -> list[Hit]:
    """Return the title, link, and snippet of each result; earlier results score higher."""
    results = answer.get(field, []) if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise ServiceError(f"the web search returned no list {field!r}")
    hits = []
    for index, item in enumerate(item for item in results if isinstance(item, dict)):
        title, link, snippet = (str(item.get(name) or "") for name in ("title", "link", "snippet"))
        document: Document = {"id": link or str(index), "title": title, "text": snippet}
        hits.append(Hit(document, 1 / (index + 1)))
    return hits[:k]


def _from_environment(name: str, backend: str) -> str:
    if value := os.environ.get(name):
        return value
    raise ConfigError(f"the search {backend!r} needs a key: set the environment variable {name}")
