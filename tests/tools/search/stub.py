"""Web server with scripted answers, in place of Serper, Google, and retrieval servers."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.servers import StubServer


class StubSearch:
    """Returns `answers` one after the other and repeats the last one forever; records the requests.

    Like real servers, it reads a body only if the request declares it as JSON, and answers 415 otherwise.

    An answer is ``(status, headers, body)``, a number of seconds to wait before the next answer, or None to
    close the connection. A body that is not bytes is written as JSON.
    """

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.connections = 0
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    def __enter__(self) -> StubSearch:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def setup(self) -> None:
                super().setup()
                outer.connections += 1

            def handle_one(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                with outer.lock:
                    parts = urlsplit(self.path)
                    outer.asked.append(
                        {
                            "path": parts.path, "query": dict(parse_qsl(parts.query)),
                            "headers": dict(self.headers), "body": json.loads(body) if body else None,
                        }
                    )  # fmt: skip
                    answer = outer.next_answer()
                    outer.at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer.at_once)
                try:
                    while isinstance(answer, float):
                        time.sleep(answer)
                        with outer.lock:
                            answer = outer.next_answer()
                finally:
                    with outer.lock:
                        outer.at_once -= 1
                if body and self.headers.get("Content-Type") != "application/json":
                    answer = (415, {}, {"error": "expected application/json"})
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, given = answer
                data = given if isinstance(given, bytes) else json.dumps(given).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = handle_one

            def log_message(self, *_: object) -> None:
                pass

        self.server = StubServer(("127.0.0.1", 0), Handler)
        self.server.block_on_close = False
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def next_answer(self) -> Any:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
