"""Stub of the Hugging Face Hub, with the requests that its client makes to read a dataset."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from tests.support.servers import StubServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(StubServer):
    """Serves `repositories`: id of a dataset -> file name -> content. `requests` records the requests."""

    def __init__(self, repositories: dict[str, dict[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.requests: list[str] = []
        self.sent = 0
        self.stalls = threading.Event()
        """While set, no request is answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_POST(self) -> None:  # the client requests several paths at once
        length = int(self.headers.get("Content-Length", 0))
        asked = self.rfile.read(length)
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"POST {path}")
        name = path.removeprefix("/api/datasets/").partition("/paths-info/")[0]
        files = self.server.repositories.get(name, {})
        text = unquote(asked.decode().replace("+", " "))
        wanted = (
            json.loads(text)["paths"]
            if text[:1] == "{"
            else [p[6:] for p in text.split("&") if p[:6] == "paths="]
        )
        self.send([self.entry(f, files[f]) for f in wanted if f in files])

    def answer(self, body: bool) -> None:
        if self.server.stalls.is_set():
            self.server.stalls.wait()
            while self.server.stalls.is_set():
                threading.Event().wait(0.05)
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        if path.startswith("/api/datasets/"):
            name = "/".join(path.removeprefix("/api/datasets/").split("/")[:2])
            files = self.server.repositories.get(name)
            if isinstance(files, int):
                return self.send({"error": "access is restricted"}, files)
            if files is None:
                return self.send({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            if "/tree/" in path:
                return self.send([self.entry(f, data) for f, data in files.items()])
            return self.send({"id": name, "sha": COMMIT, "siblings": [{"rfilename": f} for f in files]})
        if path.startswith("/datasets/") and "/resolve/" in path:
            name, _, rest = path.removeprefix("/datasets/").partition("/resolve/")
            data = self.server.repositories.get(name, {}).get(rest.partition("/")[2])
            if data is None:
                return self.send({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            headers = {
                "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
                "X-Repo-Commit": COMMIT,
                "Accept-Ranges": "bytes",
            }
            return self.send_file(data, headers, body)
        self.send({"error": "no such page"}, 404)

    def entry(self, name: str, data: bytes) -> dict[str, object]:
        return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}

    def send(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for key, text in {**(headers or {}), "Content-Type": "application/json"}.items():
            self.send_header(key, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_file(self, data: bytes, headers: dict[str, str], body: bool) -> None:
        asked = self.headers.get("Range", "")
        status = 200
        if asked.startswith("bytes="):
            start, _, end = asked[6:].partition("-")
            stop = int(end) + 1 if end else len(data)
            headers["Content-Range"] = f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}"
            data, status = data[int(start) : stop], 206
        self.send_response(status)
        for key, text in headers.items():
            self.send_header(key, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.server.sent += len(data)
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(repositories: dict[str, dict[str, bytes]]) -> Iterator[Hub]:
    """Run the stub."""
    hub = Hub(repositories)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.stalls.clear()
        hub.shutdown()
        hub.server_close()
        thread.join()
