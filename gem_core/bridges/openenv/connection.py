"""One connection of the server: HTTP requests, until one of them opens a session over WebSocket."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import hmac
import json
import logging
from collections import deque
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

from gem_core.bridges.openenv import frames, wire
from gem_core.bridges.openenv.hosts import unexpected
from gem_core.bridges.openenv.metrics import Metrics
from gem_core.bridges.openenv.served import ServedEnv, ServerLimits
from gem_core.bridges.openenv.sessions import SessionReply

logger = logging.getLogger(__name__)

MAX_HEAD = 16 << 10
"""Maximum size in bytes of the head of an HTTP request."""
READ_SIZE = 64 << 10
"""Maximum number of bytes per read."""
MAX_WAITING = 32
"""Number of unanswered messages at which the server stops reading from a client."""

_STATUS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict",
    413: "Content Too Large", 431: "Request Header Fields Too Large", 503: "Service Unavailable",
}  # fmt: skip


class HttpError(Exception):
    """Raised for a request that gets an error as its answer and ends the connection."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Acceptor(abc.ABC):
    """State of the server that all connections share.

    Attributes:
        limits: Limits of the server.
        token: Token that clients must send; None admits everyone.
        loop: Event loop of the server.
        connections: Open connections.
        sessions: Number of open sessions.
        draining: Whether the server is shutting down: no new session, no new episode.
        metrics: Counters.
        buffer: Buffer into which every connection reads. The 256 KB that asyncio would otherwise allocate for
            each read take a quarter of the time of a short step.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(self, limits: ServerLimits, token: str | None) -> None:
        self.limits, self.token = limits, token
        self.connections: set[Connection] = set()
        self.sessions = 0
        self.draining = False
        self.metrics = Metrics()
        self.buffer = memoryview(bytearray(READ_SIZE))  # TLS writes to slices, which must not be copies

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Return the ids of the environments."""

    @abc.abstractmethod
    def find(self, name: str) -> ServedEnv | None:
        """Return the environment at a path; the path "" belongs to a single environment."""

    @abc.abstractmethod
    def respond(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return status and answer of an HTTP request: JSON, or text if it is a str."""


class Connection(asyncio.BufferedProtocol):
    """A client of an `OpenEnvServer`.

    Messages are answered in order, one at a time. The server stops reading from a client that does not read
    its answers, or sends messages without waiting for answers, until it does.

    Attributes:
        active_at: Time of the last data from the client, in seconds of `time.monotonic`. Pings do not count
            once the session is open, because libraries send them for programs that have stopped.
        running: Whether an episode is running.
        seat: The host's side of the session; None without a session.
    """

    __slots__ = (
        "_buffer", "_frames", "_full", "_inline", "_server", "_task", "_transport", "_waiting", "active_at",
        "env", "running", "seat",
    )  # fmt: skip

    def __init__(self, server: Acceptor) -> None:
        self._server = server
        self._transport: Any = None
        self._buffer = b""
        self._frames: frames.FrameReader | None = None
        self._waiting: deque[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._full = False  # the client does not read
        self._inline = False  # the session answers on the event loop
        self.active_at = monotonic()
        self.env: ServedEnv | None = None
        self.seat: Any = None
        self.running = False

    # -- asyncio.BufferedProtocol -------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._leave()

    def pause_writing(self) -> None:
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        self._transport.resume_reading()
        if self._waiting:
            self._answer_next()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._read(bytes(self._server.buffer[:nbytes]))

    def _read(self, data: bytes) -> None:
        if self._frames is None:
            self.active_at = monotonic()
            self._read_http(data)
            return
        try:
            messages = self._frames.feed(data)
        except frames.FrameError as error:
            self.end(error.code, str(error))
            return
        for opcode, payload in messages:
            if opcode <= frames.BINARY:
                self._receive(payload)
            elif opcode == frames.PING:
                self._transport.write(frames.encode_frame(payload, frames.PONG))
            elif opcode == frames.CLOSE:
                self.end(frames.NORMAL, "")

    # -- the session --------------------------------------------------------------------------

    def _receive(self, payload: bytes) -> None:
        self.active_at = monotonic()
        if self.env is None or self.seat is None:
            return
        if self._inline and not (self._waiting or self._full):
            self._send(self.seat.answer(payload), self.active_at)
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(payload)
        if len(self._waiting) >= MAX_WAITING:
            self._transport.pause_reading()
        self._answer_next()

    def _answer_next(self) -> None:
        if self._task is None and not self._full:
            self._task = self._server.loop.create_task(self._answer_waiting())

    async def _answer_waiting(self) -> None:
        try:
            while self._waiting and self.seat is not None and self.env is not None and not self._full:
                began = monotonic()
                payload = self._waiting.popleft()
                try:
                    reply = await self.env.host.answer(self.seat, payload)
                except Exception as error:
                    logger.exception("answering a message failed")
                    reply = unexpected(error)
                self._send(reply, began)
                await asyncio.sleep(0)  # after a message that was answered inline
        finally:
            self._task = None
        if not (self._full or self._transport.is_closing()):
            self._transport.resume_reading()

    def _send(self, reply: SessionReply, began: float) -> None:
        server = self._server
        server.metrics.count(reply.event, monotonic() - began)
        if self.running and not reply.running and reply.event == "step":
            server.metrics.episodes += 1
        self.running = reply.running
        if reply.event == "close":
            self.end(frames.NORMAL, "")
            return
        self._transport.write(frames.encode_frame(reply.data))
        if server.draining and not reply.running:
            self.end(frames.GOING_AWAY, "the server shuts down")

    @property
    def busy(self) -> bool:
        """Whether a message of the client is being answered."""
        return self._task is not None

    def end(self, code: int, reason: str) -> None:
        """End the connection with a close frame, or at once if there is no session."""
        if self._transport.is_closing():
            return
        if self._frames is not None:
            self._transport.write(frames.encode_frame(frames.encode_close(code, reason), frames.CLOSE))
        self._transport.close()
        self._leave()

    def _leave(self) -> None:
        seat, self.seat, self.running = self.seat, None, False
        self._waiting = None
        if self._task is not None:
            self._task.cancel()
        if seat is not None and self.env is not None:
            self._server.sessions -= 1
            self.env.host.close(seat)

    # -- HTTP ---------------------------------------------------------------------------------

    def _read_http(self, data: bytes) -> None:
        self._buffer += data
        try:
            while self._frames is None and self._read_request():
                pass
        except HttpError as error:
            self._respond(error.status, {"detail": str(error)})
            self._transport.close()
            return
        if self._frames is not None and self._buffer:
            rest, self._buffer = self._buffer, b""
            self._read(rest)

    def _read_request(self) -> bool:
        """Answer the first request of the buffer; return whether it was complete."""
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD:
            raise HttpError(431, f"the head of a request has at most {MAX_HEAD} bytes")
        if not separator:
            return False
        method, target, headers = _parse_head(head)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or "transfer-encoding" in headers:
            raise HttpError(400, "expected a body with a Content-Length")
        if int(length) > self._server.limits.max_message:
            raise HttpError(413, f"a body has at most {self._server.limits.max_message} bytes")
        if len(rest) < int(length):
            return False
        body, self._buffer = rest[: int(length)], rest[int(length) :]
        path = unquote(urlsplit(target).path)
        self._check_access(path, headers)
        if "websocket" in headers.get("upgrade", "").lower():
            self._upgrade(path, headers)
            return True
        status, answer = self._server.respond(method, path, body)
        self._respond(status, answer, head_only=method == "HEAD")
        if headers.get("connection", "").lower() == "close":
            self._transport.close()
            return False
        return True

    def _check_access(self, path: str, headers: dict[str, str]) -> None:
        token = self._server.token
        if token is not None and path != "/health":
            credentials = headers.get("authorization", "").encode("latin-1", "replace")
            if not hmac.compare_digest(credentials, b"Bearer " + token.encode()):
                raise HttpError(401, "expected the header 'Authorization: Bearer TOKEN' with the token")
        origin = headers.get("origin")  # set by browsers: a web page must not reach a server on loopback
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            raise HttpError(403, f"requests from pages of {origin[:200]} are not allowed")

    def _upgrade(self, path: str, headers: dict[str, str]) -> None:
        server = self._server
        name, _, last = path.rstrip("/").rpartition("/")
        env = server.find(name.strip("/"))
        key = headers.get("sec-websocket-key", "")
        if last != "ws" or env is None:
            raise HttpError(404, f"no session at {path[:200]!r}; environments: {', '.join(server.names())}")
        if not key or headers.get("sec-websocket-version") != "13":
            raise HttpError(400, "expected a WebSocket handshake of version 13")
        if server.draining:
            raise HttpError(503, "the server shuts down")
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + frames.accept_key(key).encode() + b"\r\n\r\n"
        )
        self._frames = frames.FrameReader(masked=True, max_size=server.limits.max_message)
        if server.sessions >= server.limits.max_sessions:  # in the words of OpenEnv's server
            server.metrics.events[wire.CAPACITY_REACHED] += 1
            text = f"Server at capacity: {server.sessions} sessions are active, the maximum"
            self._transport.write(
                frames.encode_frame(wire.encode(wire.error_message(text, wire.CAPACITY_REACHED)))
            )
            self.end(frames.TRY_LATER, "at capacity")
            return
        self.env, self.seat, self._inline = env, env.host.open(), env.inline
        server.sessions += 1
        server.metrics.opened += 1

    def _respond(self, status: int, answer: Any, head_only: bool = False) -> None:
        if isinstance(answer, str):
            body, kind = answer.encode(), "text/plain; version=0.0.4; charset=utf-8"
        else:
            body, kind = json.dumps(answer).encode(), "application/json"
        lines = [
            f"HTTP/1.1 {status} {_STATUS[status]}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
        ]
        if status == 401:
            lines.append("WWW-Authenticate: Bearer")
        head = "\r\n".join([*lines, "", ""]).encode()
        self._transport.write(head if head_only else head + body)


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return method, target, and headers (with lower-case names) of an HTTP request."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400, "expected an HTTP/1.1 request")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise HttpError(400, "a header has no colon")
        headers[name.strip().lower()] = value.strip()
    return words[0], words[1], headers


def decode_body(body: bytes) -> Any:
    """Return the JSON value of a body; None if there is none or it is not JSON."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(body)
    return None
