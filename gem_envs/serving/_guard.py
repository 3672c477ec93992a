"""Limits on connections that hold below HTTP: their number, the size of a head, and time limits.

A `Guard` stands between the event loop and the protocol of an HTTP server, so it works with any server whose
connections are `asyncio.Protocol` objects.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gem_core._util.checks import check_int, check_number

MAX_HEAD = 16 << 10
"""Maximum size in bytes of the head of the first request on a connection."""
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on connections.

    Attributes:
        most: Maximum number of connections. Files that the process may open can reduce it.
        waiting: Maximum number of connections without an admitted request.
        handshake: Number of seconds from the connection to its first admitted request.
        keep_alive: Number of seconds from an answer to the next complete head.
    """

    most: int = 20_000
    waiting: int = 4096
    handshake: float = 10.0
    keep_alive: float = 75.0

    def __post_init__(self) -> None:
        check_int("most", self.most, 1)
        check_int("waiting", self.waiting, 1)
        check_number("handshake", self.handshake, above=0)
        check_number("keep_alive", self.keep_alive, above=0)


class Guard:
    """The connections of a server.

    Args:
        limits: Their limits.
        key: Function from the transport of a connection to its key.

    Attributes:
        connections: Open connections by their keys.
    """

    def __init__(self, limits: ConnectionLimits, key: Callable[[Any], Any] = id) -> None:
        self.limits, self.key = limits, key
        self.connections: dict[Any, GuardedConnection] = {}
        self._waiting: dict[Any, dict[GuardedConnection, None]] = {}  # by host of the client, oldest first
        self._most = min(limits.most, _most_files())

    def wrap(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Return a factory of guarded protocols for a factory of protocols."""
        return lambda: GuardedConnection(self, make())

    def enter(self, connection: GuardedConnection) -> bool:
        """Add a connection that has not sent a request; return whether there is room for it.

        If too many connections wait, the oldest of the host with the most of them ends, so that a host that
        opens connections and sends nothing displaces its own.
        """
        if len(self.connections) >= self._most:
            return False
        if sum(map(len, self._waiting.values())) >= self.limits.waiting:
            heaviest = max(self._waiting.values(), key=len)
            next(iter(heaviest)).abort()
        self.connections[connection.key] = connection
        self._waiting.setdefault(connection.host, {})[connection] = None
        return True

    def stop_waiting(self, connection: GuardedConnection) -> None:
        """Count a connection no longer as waiting."""
        waiting = self._waiting.get(connection.host, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.host, None)

    def leave(self, connection: GuardedConnection) -> None:
        """Remove a connection."""
        self.stop_waiting(connection)
        self.connections.pop(connection.key, None)

    def close(self) -> None:
        """End all connections at once."""
        for connection in list(self.connections.values()):
            connection.abort()


class GuardedConnection(asyncio.Protocol):
    """A connection of a `Guard`.

    Attributes:
        key: Key of the connection.
        host: Host of the client, or the path of the Unix socket through which it came.
    """

    pause_writing: Callable[[], None]
    resume_writing: Callable[[], None]
    eof_received: Callable[[], bool | None]

    def __init__(self, guard: Guard, inner: asyncio.Protocol) -> None:
        self._guard, self._inner = guard, inner
        self.pause_writing = inner.pause_writing
        self.resume_writing = inner.resume_writing
        self.eof_received = inner.eof_received
        self.key: Any = None
        self.host: Any = None
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0  # bytes of an incomplete first head; -1 once it is complete
        self._tail = b""  # its last three bytes

    def connection_made(self, transport: Any) -> None:
        self.key = self._guard.key(transport)
        client, server = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        self.host = client[0] if isinstance(client, tuple) else server
        if not self._guard.enter(self):
            transport.abort()
            return
        self._transport = transport
        self._end_in(self._guard.limits.handshake)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._head >= 0 and not self._in_limit(data):
            return
        self._inner.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is None:  # there was no room
            return
        self._cancel_timer()
        self._guard.leave(self)
        self._inner.connection_lost(error)

    def admit(self) -> None:
        """End the time limit, because a request is being answered."""
        self._head = -1
        self._cancel_timer()
        self._guard.stop_waiting(self)

    def rest(self) -> None:
        """Start the time limit for the next request, because one was answered."""
        if self._guard.connections.get(self.key) is self:
            self._end_in(self._guard.limits.keep_alive)

    def abort(self) -> None:
        """End the connection without sending what is left."""
        self._guard.leave(self)
        self._cancel_timer()
        self._transport.abort()

    def _in_limit(self, data: bytes) -> bool:
        """Count the bytes of the first head; return whether there may be more of them."""
        seen = self._tail + data
        end = seen.find(b"\r\n\r\n")
        size = self._head + len(data) if end < 0 else self._head - len(self._tail) + end
        if size > MAX_HEAD:
            if not self._transport.is_closing():
                self._transport.write(_TOO_LONG)
                self._transport.close()
            return False
        self._head, self._tail = (size, seen[-3:]) if end < 0 else (-1, b"")
        return True

    def _end_in(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def connection_key(transport: Any) -> tuple[Any, Any]:
    """Return the addresses of both sides of a connection, as a key on a server with one socket."""
    client, server = (transport.get_extra_info(name) for name in ("peername", "sockname"))
    return tuple(client[:2]) if client else None, tuple(server[:2]) if server else None


def _most_files() -> int:
    """Return the number of connections for which the process may open files; some are left for other use."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft != resource.RLIM_INFINITY:
            return max(16, soft - 128)
    return 1 << 30
