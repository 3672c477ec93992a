"""A client for JSON over HTTP with persistent connections, a time limit, and retries with backoff.

It uses only the standard library and is thread-safe; `gem_envs._proxies` chooses the proxy. Error
messages contain neither the query string nor the headers, because these may contain keys.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import json
import random
import socket
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any, NamedTuple

from gem_core._util.checks import check_number
from gem_core._util.foreign_json import read_json
from gem_core._util.forks import ForkSafeLock, renew_after_fork
from gem_core._util.messages import error_line
from gem_core._util.places import Places, pause, stopping
from gem_core._util.urls import without_secrets
from gem_core.errors import ConfigError, ServiceError, WrongServer
from gem_envs._proxies import proxy_for, via

MOST_BYTES = 32 * 2**20
"""Maximum size of an answer, in bytes."""
_LONGEST_PAUSE = 30.0
_WORTH_A_RETRY = (408, 425, 429, 500, 502, 503, 504)


class HttpClient:
    """Client of one server.

    Args:
        url: ``http://host:port/path``; the paths of requests are appended.
        timeout: Time limit of one whole attempt, in seconds.
        retries: Number of retries after a temporary failure: no connection, no answer in time, or a status of
            408, 425, 429, 500, or 502 to 504.
        backoff: Seconds before the first retry. Each pause is twice as long as the one before, plus up to
            half of it at random. ``Retry-After`` is respected.
        connections: Maximum number of concurrent requests; others wait.
        headers: Headers of every request.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        retries: int = 3,
        backoff: float = 0.25,
        connections: int = 8,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"url={without_secrets(url)!r}: expected http://host:port or https://host")
        for name, value, minimum in (
            ("timeout", timeout, 0.001),
            ("retries", retries, 0),
            ("backoff", backoff, 0),
        ):
            check_number(name, value, minimum)
        self.where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self.timeout, self.retries, self.backoff = float(timeout), int(retries), float(backoff)
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._proxy = _Proxy.of(url)
        self._headers = {"Accept": "application/json", "User-Agent": "gem-core", **(headers or {})}
        self._free = Places(connections)
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = ForkSafeLock()
        renew_after_fork(self)

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        """Send a GET request and return its JSON answer.

        Raises:
            ServiceError: There is no answer, or its status means a temporary failure.
            WrongServer: The answer is another error or not JSON.
            GivenUp: Nobody waits for the answer anymore.
        """
        return self._ask("GET", f"{path}?{urllib.parse.urlencode(query)}", None)

    def post(self, path: str, body: Any) -> Any:
        """Send `body` as JSON in a POST request and return its JSON answer.

        Raises:
            ServiceError: There is no answer, or its status means a temporary failure.
            WrongServer: The answer is another error or not JSON.
            GivenUp: Nobody waits for the answer anymore.
        """
        return self._ask("POST", path, json.dumps(body).encode())

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def forget_parent(self) -> None:
        """Forget the connections in a forked child, because they belong to the parent."""
        self._idle = []

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        address = f"{self.where}{self._path}{path.partition('?')[0]}"
        by = via(self._proxy and self._proxy.url)
        attempt = 0
        while True:
            reply: _HttpReply | None = None
            try:
                with self._free.held():
                    reply = self._once(method, self._path + path, body)
                if reply.status < 300:
                    return read_json(reply.body)
                problem = f"{address} answered{by} with status {reply.status}{_excerpt(reply.body)}"
                again = reply.status in _WORTH_A_RETRY
            except (OSError, http.client.HTTPException) as error:
                problem = f"{address} does not answer{by} ({error_line(error, 160)})"
                again = _may_pass(error)
            except ValueError:
                problem, again = f"{address} did not answer with JSON", False
            if not again:
                raise WrongServer(problem)
            if attempt >= self.retries:
                tries = f", after {attempt + 1} attempts" if attempt else ""
                raise ServiceError(f"{problem}{tries}")
            seconds = self.backoff * 2**attempt * (1 + random.random() / 2)
            pause(min(_LONGEST_PAUSE, max(seconds, reply.wait if reply else 0.0)))
            attempt += 1

    def _once(self, method: str, path: str, body: bytes | None) -> _HttpReply:
        end = time.monotonic() + self.timeout
        while True:
            connection, used = self._connection()
            try:
                with stopping(functools.partial(_interrupt, connection)):
                    reply = self._exchange(connection, method, path, body, end)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                connection.close()
                if not used:
                    raise
                continue  # the server had closed an idle connection
            except BaseException:
                connection.close()
                raise
            if connection.sock is not None:
                with self._lock:
                    self._idle.append(connection)
            return reply

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, end: float
    ) -> _HttpReply:
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        if self._proxy and not self._secure:
            path, headers = self.where + path, {**headers, **self._proxy.headers}
        connection.timeout = _left(end)
        if connection.sock is not None:
            connection.sock.settimeout(_left(end))
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        parts, size = [], 0
        while True:
            if connection.sock is not None:
                connection.sock.settimeout(_left(end))
            part = response.read1(2**16)
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise http.client.HTTPException(f"an answer of more than {MOST_BYTES} bytes")
        if response.length:
            raise http.client.HTTPException("the answer ends early")
        response.close()
        wait = response.headers.get("Retry-After", "")
        if response.will_close:
            connection.close()
        return _HttpReply(response.status, b"".join(parts), float(wait) if wait.isdecimal() else 0.0)

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it was used before."""
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        host, port = (self._proxy.host, self._proxy.port) if self._proxy else (self._host, self._port)
        if not self._secure:
            return http.client.HTTPConnection(host, port), False
        connection = http.client.HTTPSConnection(host, port, context=ssl.create_default_context())
        if self._proxy:
            connection.set_tunnel(self._host, self._port or 443, self._proxy.headers)
        return connection, False


class _HttpReply(NamedTuple):
    status: int
    body: bytes
    wait: float
    """Value of ``Retry-After`` in seconds."""


def _interrupt(connection: http.client.HTTPConnection) -> None:
    """Let the thread that waits for an answer see the end of the connection."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # without a last message of TLS


class _Proxy(NamedTuple):
    url: str
    host: str
    port: int
    headers: dict[str, str]
    """Headers with the user and the password of the proxy."""

    @classmethod
    def of(cls, url: str) -> _Proxy | None:
        """Return the proxy through which to reach an address; None if it is reached directly.

        Raises:
            ConfigError: The proxy speaks another protocol than HTTP.
        """
        proxy = proxy_for(url)
        if proxy is None:
            return None
        parts = urllib.parse.urlsplit(proxy)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError(f"the proxy {without_secrets(proxy)}: expected http://host:port")
        headers = {}
        if parts.username is not None:
            user = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}")
            headers["Proxy-Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        return cls(proxy, parts.hostname, parts.port or 80, headers)


def _may_pass(error: Exception) -> bool:
    """Return whether an error may be temporary, unlike the errors of a wrong protocol or certificate."""
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return not isinstance(error, http.client.BadStatusLine) or isinstance(error, ConnectionError)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("no complete answer in time")
    return left


def _excerpt(body: bytes) -> str:
    """Return the beginning of a server's error message."""
    text = " ".join(body[:2000].decode("utf-8", "replace").split())
    return f": {text[:200]}" if text and not text.startswith("<") else ""
