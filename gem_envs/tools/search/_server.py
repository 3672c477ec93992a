"""HTTP server for a searcher, with the retrieval protocol of Search-R1.

``POST /retrieve`` with ``{"queries": ["..."], "topk": 3, "return_scores": true}`` returns
``{"result": [[{"document": {"id", "title", "text", "contents"}, "score"}, ...], ...]}``, or only the
documents if ``return_scores`` is false; ``GET /health`` returns ``{"status": "ok"}``. An invalid request
returns a status of 400 or above with ``{"error": "..."}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterable
from typing import Any

from gem_core._util.foreign_json import read_json
from gem_core.errors import GemError
from gem_envs.serving._access import Access, RequestRefused
from gem_envs.serving._http import HttpServer, json_response, read_body, send, web
from gem_envs.serving._run import run_loop
from gem_envs.tools.search._searcher import Hit, Searcher

MOST_BYTES = 4 << 20
"""Maximum size in bytes of a request."""
MOST_QUERIES = 1024
MOST_DOCUMENTS = 200
MOST_ANSWER = 8 << 20
"""Maximum size in bytes of an answer."""
MOST_UNSENT = 128 << 20
"""Maximum size in bytes of all answers that clients have not received yet."""
_PATHS = "unknown path: expected GET /health or POST /retrieve"


class SearchServer:
    """Serves a search from the threads of its searcher.

        with SearchServer(searcher, port=8000):
            ...

    Args:
        searcher: Searcher to query.
        host: Address to listen on; the default accepts only callers on this machine.
        port: Port to listen on; 0 picks a free one.
        topk: Default number of documents per query.
        token: Text that clients must send as ``Authorization: Bearer TOKEN``; None admits everyone.
        hosts: Further names, without port, that clients may use for the server; see `Access`.
        public: Whether an address other than loopback may be served without a token.

    Raises:
        ConfigError: The address is not loopback and there is no token.
        OSError: The port is taken.
    """

    def __init__(
        self,
        searcher: Searcher,
        host: str = "127.0.0.1",
        port: int = 8000,
        topk: int = 3,
        token: str | None = None,
        hosts: Iterable[str] = (),
        public: bool = False,
    ) -> None:
        self.searcher, self.topk = searcher, topk
        self._access = Access.for_address(host, token, hosts, public)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.host, self.port = self._socket.getsockname()[:2]
        self._unsent = 0  # bytes
        self._ready, self._thread = threading.Event(), threading.Thread()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event

    @property
    def url(self) -> str:
        """URL of the server."""
        host = str(self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def serve(self) -> None:
        """Serve until `close` is called from another thread."""
        try:
            run_loop(self._serve())
        finally:
            self._loop = None
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = HttpServer(self._answer, error_key="error")
        await server.listen(self._access, self._socket)
        self._ready.set()
        try:
            await self._stop.wait()
        finally:
            await server.close()

    def __enter__(self) -> SearchServer:
        self._thread = threading.Thread(target=self.serve, name="gem-search-server", daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._thread.join()

    def close(self) -> None:
        """Stop serving. May be called more than once."""
        loop = self._loop
        if loop is None:
            self._socket.close()
            return
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(self._stop.set)

    async def _answer(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        if request.method in ("GET", "HEAD") and path == "/health":
            return json_response({"status": "ok"})
        if request.method != "POST" or path.rstrip("/") != "/retrieve":
            raise RequestRefused(404, _PATHS)
        queries, k, scored = read_request(await read_body(request, MOST_BYTES), self.topk)
        try:
            data = await self._find(queries, k, scored)
        except GemError as error:
            raise RequestRefused(502, str(error)) from error
        if self._unsent + len(data) > MOST_UNSENT:
            raise RequestRefused(503, "other clients have not read their answers yet: ask again later")
        self._unsent += len(data)
        try:
            return await send(request, web.Response(body=data, content_type="application/json"))
        finally:
            self._unsent -= len(data)

    async def _find(self, queries: list[str], k: int, scored: bool) -> bytes:
        """Return the answer to a request.

        Args:
            queries: The queries.
            k: Number of documents per query.
            scored: Whether the answer has scores.

        Raises:
            Refusal: The answer is too long.
            GemError: The search failed.
        """
        results, size = [], 0
        for query in queries:
            found = []
            for hit in await self.searcher.asearch(query, k):
                found.append(json.dumps(_shown(hit, scored)).encode())
                size += len(found[-1]) + 2
                if size > MOST_ANSWER:
                    raise RequestRefused(
                        413,
                        f"the answer has more than {MOST_ANSWER} bytes: send fewer queries, or a "
                        "smaller 'topk'",
                    )
            results.append(b"[%b]" % b", ".join(found))
        return b'{"result": [%b]}' % b", ".join(results)


def read_request(body: bytes, topk: int) -> tuple[list[str], int, bool]:
    """Return the queries, the number of documents, and whether scores are requested.

    Raises:
        Refusal: The body is not a valid request.
    """
    try:
        request = read_json(body)
    except ValueError:
        raise RequestRefused(400, "the body is not JSON") from None
    if not isinstance(request, dict):
        raise RequestRefused(400, "expected an object with 'queries'")
    queries, k = request.get("queries"), request.get("topk")
    if isinstance(queries, str):
        queries = [queries]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise RequestRefused(400, "'queries' must be a list of strings")
    if len(queries) > MOST_QUERIES:
        raise RequestRefused(400, f"{len(queries)} queries in one request: the maximum is {MOST_QUERIES}")
    k = topk if k is None else k
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST_DOCUMENTS:
        raise RequestRefused(400, f"'topk' must be a whole number from 1 to {MOST_DOCUMENTS}")
    return queries, k, request.get("return_scores") is True


def _shown(hit: Hit, scored: bool) -> dict[str, Any]:
    """Return a document as clients of Search-R1 expect it."""
    document = {**hit.document, "contents": f'"{hit.document["title"]}"\n{hit.document["text"]}'}
    return {"document": document, "score": hit.score} if scored else document
