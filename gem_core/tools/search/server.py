"""HTTP server for a searcher, with the retrieval protocol of Search-R1.

``POST /retrieve`` with ``{"queries": ["..."], "topk": 3, "return_scores": true}`` returns
``{"result": [[{"document": {"id", "title", "text", "contents"}, "score"}, ...], ...]}``, or only the
documents if ``return_scores`` is false; ``GET /health`` returns ``{"status": "ok"}``. An invalid request
returns status 400 with ``{"error": "..."}``.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gem_core.errors import GemError
from gem_core.tools.search.searcher import Hit, Searcher

logger = logging.getLogger(__name__)

MOST_BYTES = 4 * 2**20
MOST_QUERIES = 1024
MOST_DOCUMENTS = 1000


class SearchServer:
    """Serves a search from threads of this process.

        with SearchServer(searcher, port=8000):
            ...

    Args:
        searcher: Searcher to query.
        host: Address to listen on; the default accepts only callers on this machine.
        port: Port to listen on; 0 picks a free one.
        topk: Default number of documents per query.

    Raises:
        OSError: The port is taken.
    """

    def __init__(self, searcher: Searcher, host: str = "127.0.0.1", port: int = 8000, topk: int = 3) -> None:
        self.searcher, self.topk = searcher, topk
        self._server = _Server((host, port), _handler(searcher, topk))
        self.host, self.port = self._server.server_address[:2]

    @property
    def url(self) -> str:
        """URL of the server."""
        host = str(self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def serve(self) -> None:
        """Serve until `close` is called from another thread."""
        self._server.serve_forever(poll_interval=0.2)

    def __enter__(self) -> SearchServer:
        threading.Thread(target=self.serve, name="gem-search-server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        """Stop listening."""
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error; a disconnected client only at debug level."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, ConnectionError | TimeoutError) else logging.ERROR
        logger.log(level, "a request of %s failed", client_address, exc_info=error)


class _Mistake(Exception):
    """Raised for an invalid request; the message says what is wrong."""


def _handler(searcher: Searcher, topk: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open
        timeout = 120.0  # then an idle one is closed
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path == "/health":
                self._answer(200, {"status": "ok"})
            else:
                self._answer(404, {"error": "unknown path: expected GET /health or POST /retrieve"})

        def do_POST(self) -> None:
            try:
                body = self._body()
                if self.path.rstrip("/") != "/retrieve":
                    self._answer(404, {"error": "unknown path: expected GET /health or POST /retrieve"})
                    return
                queries, k, scored = read_request(body, topk)
                self._answer(
                    200, {"result": [_result(searcher.search(query, k), scored) for query in queries]}
                )
            except _Mistake as mistake:
                self._answer(400, {"error": str(mistake)})
            except GemError as error:
                self._answer(502, {"error": str(error)})

        def _body(self) -> bytes:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                self.close_connection = True  # the rest of the body would be read as the next request
                raise _Mistake(f"expected a body with a Content-Length of at most {MOST_BYTES}")
            return self.rfile.read(int(length))

        def _answer(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Suppress the log line of each request."""

    return Handler


def read_request(body: bytes, topk: int) -> tuple[list[str], int, bool]:
    """Return the queries, the number of documents, and whether scores are requested.

    Raises:
        _Mistake: The body is not a valid request.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise _Mistake("the body is not JSON") from None
    if not isinstance(request, dict):
        raise _Mistake("expected an object with 'queries'")
    queries, k = request.get("queries"), request.get("topk")
    if isinstance(queries, str):
        queries = [queries]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise _Mistake("'queries' must be a list of strings")
    if len(queries) > MOST_QUERIES:
        raise _Mistake(f"{len(queries)} queries in one request: the maximum is {MOST_QUERIES}")
    k = topk if k is None else k
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST_DOCUMENTS:
        raise _Mistake(f"'topk' must be a whole number from 1 to {MOST_DOCUMENTS}")
    return queries, k, request.get("return_scores") is True


def _result(hits: list[Hit], scored: bool) -> list[dict[str, Any]]:
    documents = [
        {**hit.document, "contents": f'"{hit.document["title"]}"\n{hit.document["text"]}'} for hit in hits
    ]
    if not scored:
        return documents
    return [{"document": doc, "score": hit.score} for doc, hit in zip(documents, hits, strict=True)]
