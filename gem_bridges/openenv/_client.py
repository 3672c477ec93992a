"""`ClientSession`: one session with an OpenEnv server, on the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Coroutine
from typing import Any

from gem_bridges.openenv import _wire
from gem_bridges.openenv._address import Address, ServerError, ServerFull, SessionLost, access_headers
from gem_core._util.foreign_json import read_json
from gem_core._util.waiting import Overdue, within
from gem_core.errors import ConfigError, EnvError, MissingDependency
from gem_envs._proxies import proxy_for, via

try:
    import aiohttp
    from yarl import URL
except ImportError as error:
    raise MissingDependency("OpenEnv's servers need aiohttp: pip install 'gem-core[serve]'") from error

MAX_MESSAGE = 100 << 20
"""Maximum size in bytes of an answer, as in OpenEnv's client."""

_OUR_FAULT = (
    aiohttp.WSCloseCode.PROTOCOL_ERROR,
    aiohttp.WSCloseCode.INVALID_TEXT,
    aiohttp.WSCloseCode.MESSAGE_TOO_BIG,
)
"""Codes of close frames after which the same message would also end the next session."""


_REASONS = {aiohttp.WSCloseCode.MESSAGE_TOO_BIG: "the message is too long"}
"""Meanings of codes that servers send without a text."""
_CLOSED = "the session is closed"
_tasks: set[asyncio.Task[object]] = set()


class ClientSession:
    """A session; `open` creates it.

    Args:
        http: The HTTP client that holds the connection.
        socket: The WebSocket.
    """

    def __init__(self, http: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse[Any]) -> None:
        self._http, self._socket = http, socket
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[bytes] | None = None
        self._ended: str | None = None
        self._full = False
        _keep(self._receive())

    @classmethod
    async def open(cls, address: Address, token: str | None, timeout: float) -> ClientSession:
        """Open a session.

        Raises:
            ConfigError: The server rejects the token or has no environment there.
            SessionLost: There is no connection; a later attempt may succeed.
        """
        proxy = proxy_for(address.url)
        where = f"{address.host}:{address.port}{via(proxy)}"
        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(_no_redirect)
        http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1),
            trace_configs=[trace],
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        try:
            socket = await within(
                timeout,
                http.ws_connect(
                    URL(f"{address.url}/ws", encoded=True), headers=access_headers(token),
                    ssl=address.tls or True, autoping=True, max_msg_size=MAX_MESSAGE, decode_text=False,
                    timeout=aiohttp.ClientWSTimeout(ws_close=1.0), proxy=proxy,
                ),
                unused=lambda socket: _keep(socket.close()),
            )  # fmt: skip
        except BaseException as error:
            _keep(http.close())  # with its connection, also one that was opened when the caller was canceled
            if isinstance(error, Overdue):
                raise SessionLost(f"no connection to {where} within {timeout:g} s") from None
            if isinstance(error, aiohttp.WSServerHandshakeError):
                raise _rejected(error) from error
            if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
                raise ConfigError(f"the certificate of {address.host} is not trusted: {error}") from error
            if isinstance(error, aiohttp.ClientError | OSError | asyncio.TimeoutError):
                raise SessionLost(f"no connection to {where}: {error!r:.300}") from error
            raise
        return cls(http, socket)

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return self._ended is None

    @property
    def ended(self) -> str:
        """Why the connection is closed; "" if it is open."""
        return self._ended or ""

    async def ask(self, kind: str, data: dict[str, Any], timeout: float | None) -> dict[str, Any]:
        """Send a message and return the data of its answer.

        Raises:
            SessionLost: The connection ended, or the server lost the episode.
            ServerFull: The server has no place for this session.
            ServerError: The server answered with another error.
            EnvError: The answer violates the protocol or did not arrive in time; the session is closed.
        """
        if self._ended is not None:
            raise self._lost(self._ended)
        self._answer = self._loop.create_future()
        message = json.dumps({"type": kind, "data": data}).encode()
        try:
            payload = await within(timeout, self._exchange(message, self._answer))
        except BaseException as error:
            answer, self._answer = self._answer, None
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # mark as retrieved: the message could not be sent
            self.close()  # the answer may still arrive
            if isinstance(error, Overdue):
                raise EnvError(f"the server did not answer within {timeout:g} s") from None
            raise
        self._answer = None
        try:
            answer = read_json(payload)
            data = answer["data"]
            if answer["type"] != "error":
                return dict(data)
            code, text = str(data["code"]), str(data["message"])
        except (ValueError, TypeError, KeyError) as error:
            self.close()
            raise EnvError(f"the server sent an unexpected message: {payload[:200]!r}") from error
        if code == _wire.CAPACITY_REACHED:
            raise ServerFull(f"{text} ({code})")
        if code == _wire.SESSION_ERROR:
            raise SessionLost(f"{text} ({code})")
        raise ServerError(f"{text} ({code})", code)

    async def _exchange(self, message: bytes, answer: asyncio.Future[bytes]) -> bytes:
        with contextlib.suppress(ConnectionError):  # why the server closed it is still to be read
            await self._socket.send_frame(message, aiohttp.WSMsgType.TEXT)
        if self._ended is not None:
            raise self._lost(self._ended)
        return await answer

    def close(self) -> None:
        """End the session. May be called more than once."""
        if self._ended != _CLOSED:
            self._end(_CLOSED)
            self._ended = _CLOSED
            _keep(self._shut())

    async def _shut(self) -> None:
        try:
            await self._socket.close()
        finally:
            await self._http.close()

    async def _receive(self) -> None:
        """Read messages; aiohttp answers the pings of the server."""
        while True:
            message = await self._socket.receive()
            if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(message.data)
                elif _wire.CAPACITY_REACHED.encode() in message.data:
                    self._full = True
                    self._end("the server is at capacity")
                continue
            if message.type is aiohttp.WSMsgType.CLOSE:
                reason = str(message.extra or _REASONS.get(message.data, ""))
                text = f"the server closed the session ({message.data} {reason[:200]})"
                self._full = self._full or message.data == aiohttp.WSCloseCode.TRY_AGAIN_LATER
                self._end(text, EnvError(text) if message.data in _OUR_FAULT else None)
            elif message.type is aiohttp.WSMsgType.ERROR:
                self._end(f"the connection failed: {message.data!r:.300}")
            else:
                self._end("the server closed the connection")
            await self._shut()
            return

    def _end(self, reason: str, error: Exception | None = None) -> None:
        if self._ended is not None:
            return
        self._ended = reason
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or self._lost(reason))

    def _lost(self, reason: str) -> SessionLost:
        return ServerFull(reason) if self._full else SessionLost(reason)


def _keep(work: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine on the running event loop, which itself keeps no task alive."""
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _no_redirect(session: Any, context: Any, params: aiohttp.TraceRequestRedirectParams) -> None:
    """Follow no redirect, which could lead the token to another server."""
    raise ConfigError(f"{params.url} redirects to another address: use that address")


def _rejected(error: aiohttp.WSServerHandshakeError) -> Exception:
    """Return the error for an answer that is not a WebSocket."""
    text = f"the server rejected the session: {error.status} {error.message}"
    if error.status in (101, 401, 403, 404, 421):
        return ConfigError(f"{text}; check the address and the token")
    return SessionLost(text)
