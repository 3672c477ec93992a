"""`HttpServer`: requests and WebSockets of a server, by aiohttp, after the checks of `access` and `guard`.

async def answer(request: web.BaseRequest, path: str) -> web.StreamResponse:
return json_response({"status": "ok"})

server = HttpServer(answer)
port = await server.listen(Access.for_address("127.0.0.1"), "127.0.0.1")
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import unquote

from gem_core._util.waiting import Overdue, within
from gem_core.errors import MissingDependency
from gem_envs.serving._access import Access, RequestRefused
from gem_envs.serving._guard import ConnectionLimits, Guard

try:
    from aiohttp import HttpVersion10, HttpVersion11, WSCloseCode, WSMsgType, http_exceptions, web
except ImportError as error:
    raise MissingDependency("HTTP servers need aiohttp: pip install 'gem-core[serve]'") from error

__all__ = ["Handler", "HttpServer", "WSCloseCode", "WSMsgType", "json_response", "read_body", "send", "web"]

Handler: TypeAlias = Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]
"""Answers an admitted request, given its decoded path."""

BODY_SECONDS = 30.0
"""Number of seconds in which the body of a request must arrive."""
SEND_SECONDS = 60.0
"""Number of seconds in which a client must read an answer."""
_LINGER = 2.0
"""Number of seconds for which the rest of a refused body is read, so that its sender reads the answer."""
_MAX_LINE, _MAX_FIELDS = 8190, 100

_logger = logging.getLogger(__name__)


class _NoBadRequests(logging.Filter):
    """Drops what aiohttp logs, with a traceback, about requests that are not HTTP."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], http_exceptions.HttpProcessingError))


_logger.addFilter(_NoBadRequests())


class HttpServer:
    """Serves requests over HTTP/1.1.

    A handler is canceled if its client disconnects. It may raise a `RequestRefused`; any other exception is
    logged and answered with status 500.

    Args:
        handler: Function that answers an admitted request.
        limits: Limits on connections.
        error_key: Key of the message in the JSON object that answers a refused request.

    Attributes:
        guard: The connections.
    """

    def __init__(
        self, handler: Handler, limits: ConnectionLimits | None = None, error_key: str = "detail"
    ) -> None:
        self.guard = Guard(limits or ConnectionLimits())
        self._handler, self._error_key = handler, error_key
        self._access: Access
        self._listener: asyncio.Server | None = None
        self._server: web.Server | None = None

    async def listen(
        self,
        access: Access,
        address: str | socket.socket = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Accept connections and return the port.

        Args:
            access: Who may ask.
            address: Address to listen on, or a bound socket.
            port: Port to listen on; 0 picks a free one.
            tls: Certificate and key; None means no encryption.

        Raises:
            OSError: The port is taken.
        """
        self._access = access
        self._server = web.Server(
            self._answer, handler_cancellation=True, access_log=None, logger=_logger, auto_decompress=False,
            lingering_time=_LINGER, max_line_size=_MAX_LINE, max_field_size=_MAX_LINE,
            max_headers=_MAX_FIELDS,
        )  # fmt: skip
        options: dict[str, Any] = {"ssl": tls, "backlog": 4096}
        if tls is not None:
            options["ssl_handshake_timeout"] = self.guard.limits.handshake
        if isinstance(address, str):
            make, loop = self.guard.wrap(self._server), asyncio.get_running_loop()
            self._listener = await loop.create_server(make, address, port, reuse_address=True, **options)
        else:
            self._listener = await self.listen_on(address, **options)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def listen_on(self, bound: socket.socket, **options: Any) -> asyncio.Server:
        """Accept connections of a further socket, such as one in the network of a sandbox, and return them.

        Args:
            bound: The socket, which is bound.
            **options: Options of ``create_server``.
        """
        assert self._server is not None, "call listen first"
        make = self.guard.wrap(self._server)
        return await asyncio.get_running_loop().create_server(make, sock=bound, **options)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._listener is not None:
            self._listener.close()
        self.guard.close()
        if self._server is not None:
            await self._server.shutdown(1.0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = None
        if request.transport is not None:
            connection = self.guard.connections.get(id(request.transport))
        if connection is None:
            raise ConnectionResetError("the client is gone")
        try:
            path = _path(request)
            values = [request.headers.getall(name, ()) for name in ("Host", "Origin", "Authorization")]
            self._access.check(path, *values)
        except RequestRefused as refusal:
            answer = self._refuse(refusal)
            answer.force_close()
            return answer
        connection.admit()
        try:
            return await self._handler(request, path)
        except RequestRefused as refusal:
            return self._refuse(refusal)
        finally:
            connection.rest()

    def _refuse(self, refusal: RequestRefused) -> web.Response:
        answer = json_response({self._error_key: str(refusal)}, refusal.status)
        if refusal.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def _path(request: web.BaseRequest) -> str:
    if request.version not in (HttpVersion10, HttpVersion11):
        raise RequestRefused(400, "expected HTTP/1.1")
    target = request.raw_path
    if not target.startswith("/") or target.startswith("//"):
        raise RequestRefused(400, "expected a path such as /health as the target of the request")
    return unquote(target.partition("?")[0], errors="replace")


def json_response(value: Any, status: int = 200) -> web.Response:
    """Return a value as JSON."""
    return web.Response(body=json.dumps(value).encode(), status=status, content_type="application/json")


async def send(
    request: web.BaseRequest,
    answer: web.StreamResponse,
    seconds: float = SEND_SECONDS,
    written: Callable[[], object] | None = None,
) -> web.StreamResponse:
    """Send an answer and return it; if the client does not read it in time, the connection ends.

    A handler that only returns its answer no longer counts its bytes while they wait for the client.

    Args:
        request: The request.
        answer: The answer.
        seconds: Number of seconds in which the client must read it.
        written: Called when the whole answer is written; a client may hang up before this function returns.
    """
    transport = request.transport
    try:
        await within(seconds, _send(request, answer, written))
    except Overdue:
        if transport is not None:
            transport.abort()
        raise ConnectionResetError("the client did not read its answer in time") from None
    return answer


async def _send(
    request: web.BaseRequest, answer: web.StreamResponse, written: Callable[[], object] | None
) -> None:
    await answer.prepare(request)
    await answer.write_eof()
    if written is not None:
        written()


async def read_body(request: web.BaseRequest, most: int, seconds: float = BODY_SECONDS) -> bytes:
    """Return the body of a request.

    Args:
        request: The request.
        most: Maximum size in bytes.
        seconds: Number of seconds in which it must arrive.

    Raises:
        Refusal: The body is too long, or does not arrive in time.
    """
    try:
        return await within(seconds, _read_body(request, most))
    except Overdue:
        raise RequestRefused(408, f"the body did not arrive within {seconds:g} s") from None


async def _read_body(request: web.BaseRequest, most: int) -> bytes:
    parts, size = [], request.content_length or 0
    if size <= most:
        size = 0
        async for part in request.content.iter_any():
            size += len(part)
            if size > most:
                break
            parts.append(part)
    if size > most:
        raise RequestRefused(413, f"a body has at most {most} bytes here")
    return b"".join(parts)
