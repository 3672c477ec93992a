"""Stubs of an OpenAI-compatible endpoint, on a port of this machine.

`StubEndpoint` takes the place of the chat completions API of an OpenAI-compatible server, and answers by a
rule of the test. `Flaky` forwards to a real endpoint or a `StubEndpoint`, and fails half of the calls in each
way that endpoints fail.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.servers import StubServer

Request = dict[str, Any]
Answer = Callable[[Request], "str | tuple[int, dict[str, Any]]"]
"""Text of a completion, or a status and a body."""


def guess(request: Request) -> str:
    """Return a move of a number game that depends only on the seed and the conversation."""
    number = (request.get("seed", 0) + len(request["messages"])) % 10 + 1
    return f"I try \\boxed{{{number}}}."


def completion(request: Request, text: str | None, finish_reason: str = "stop") -> dict[str, Any]:
    """Return the body of a successful answer; each word counts as a token."""
    words = sum(len(str(message["content"]).split()) for message in request["messages"])
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": words,
            "completion_tokens": len((text or "").split()),
            "total_tokens": words + len((text or "").split()),
        },
    }


class StubEndpoint:
    """A server for the duration of a `with` block.

    Attributes:
        requests: Bodies of the answered requests, in order.
        most_at_once: Maximum number of concurrent requests.
    """

    def __init__(self, answer: Answer = guess, key: str | None = None) -> None:
        self.answer = answer
        self.key = key
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._open = 0
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.serve(self, body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = StubServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def serve(self, handler: BaseHTTPRequestHandler, body: Request) -> None:
        with self._lock:
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
        try:
            if self.key and handler.headers["Authorization"] != f"Bearer {self.key}":
                send(handler, 401, {"error": {"message": "Incorrect API key provided"}})
                return
            answer = self.answer(body)
            if isinstance(answer, tuple):
                send(handler, *answer)
                return
            with self._lock:
                self.requests.append(body)
            send(handler, 200, completion(body, answer))
        finally:
            with self._lock:
                self._open -= 1

    def __enter__(self) -> StubEndpoint:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Flaky(StubEndpoint):
    """Forwards every second attempt to `target` and fails the others.

    The failures are an error page, a rate limit, a closed connection, and an answer that is not JSON.
    """

    def __init__(self, target: str) -> None:
        super().__init__()
        self._target = target
        self._calls = 0
        self.failed = 0

    def serve(self, handler: BaseHTTPRequestHandler, body: Request) -> None:
        with self._lock:
            self._calls += 1
            call = self._calls
        if call % 2:
            with self._lock:
                self.failed += 1
            self._fail(handler, call // 2 % 4)
            return
        headers = {"Content-Type": "application/json", "Authorization": handler.headers["Authorization"]}
        request = urllib.request.Request(
            f"{self._target}/chat/completions", json.dumps(body).encode(), headers
        )
        try:
            with urllib.request.urlopen(request) as response:
                send(handler, response.status, response.read())
        except urllib.error.HTTPError as error:
            send(handler, error.code, error.read())

    def _fail(self, handler: BaseHTTPRequestHandler, way: int) -> None:
        if way == 0:
            send(handler, 500, {"error": {"message": "something broke"}})
        elif way == 1:
            send(handler, 429, {"error": {"message": "slow down"}}, {"Retry-After": "0.05"})
        elif way == 2:
            handler.close_connection = True  # without an answer
        else:
            send(handler, 200, b'{"choices": [{"mess')


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: dict[str, Any] | bytes,
    headers: dict[str, str] | None = None,
) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(raw)))
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(raw)
