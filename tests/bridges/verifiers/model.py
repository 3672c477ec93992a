"""A scripted model behind an endpoint in OpenAI's format: binary search for a number from 1 to 10."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.servers import StubServer


def guess(messages: list[dict]) -> str:
    """Return the next guess, from the hints in the conversation."""
    low, high, last = 1, 10, None
    for message in messages:
        if message["role"] == "assistant":
            last = int(re.search(r"boxed\{(\d+)", message["content"])[1])
        elif last is not None and "higher" in message["content"]:
            low = last + 1
        elif last is not None and "lower" in message["content"]:
            high = last - 1
    return f"I guess \\boxed{{{(low + high) // 2}}}."


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": guess(request["messages"])}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        answer = {
            "id": "x", "object": "chat.completion", "created": 1, "model": request["model"], "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }  # fmt: skip
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def scripted_model() -> Iterator[str]:
    """Serve the model on a free port; yield the base URL."""
    server = StubServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
