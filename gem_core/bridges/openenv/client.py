"""`ClientSession`: one session with an OpenEnv server, on the running event loop."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from gem_core._util.foreign_json import read_json
from gem_core._util.urls import without_secrets
from gem_core.bridges.openenv import frames, wire
from gem_core.errors import ConfigError, EnvError

MAX_MESSAGE = 100 << 20
"""Maximum size in bytes of an answer, as in OpenEnv's client."""

_OUR_FAULT = (frames.PROTOCOL_ERROR, frames.BAD_TEXT, frames.TOO_BIG)
"""Codes of close frames after which the same message would also end the next session."""


class SessionLost(Exception):
    """Raised when the session or its episode is gone: a new session may work."""


class ServerError(EnvError):
    """Raised when the server answers with an error; `code` is OpenEnv's code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Address(NamedTuple):
    """Address at which a server listens.

    Attributes:
        secure: Whether connections are encrypted.
        host: Name or IP address.
        port: Port.
        path: Path before ``/ws``, without a slash at the end.
    """

    secure: bool
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read ``http://HOST:PORT/PATH``; the scheme may be http, https, ws, wss, or missing.

        Raises:
            ConfigError: The text is not such an address.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            secure = {"http": False, "ws": False, "https": True, "wss": True}[parts.scheme]
            port = parts.port or (443 if secure else 80)
            if not parts.hostname or parts.query or parts.fragment or parts.username:
                raise ValueError(url)
        except (KeyError, ValueError):
            shown = without_secrets(url if "://" in url else f"http://{url}")
            raise ConfigError(f"url={shown!r}: expected an address such as 'http://127.0.0.1:8000'") from None
        path = quote(unquote(parts.path.rstrip("/").removesuffix("/ws")), safe="/:")
        return cls(secure, parts.hostname, port, path)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """TLS settings with the certificates that the system trusts (and ``SSL_CERT_FILE``)."""
        return ssl.create_default_context() if self.secure else None

    def request(self, path: str, headers: dict[str, str]) -> bytes:
        """Return the head of a GET request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"GET {self.path}{path} HTTP/1.1", f"Host: {host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def access_headers(token: str | None) -> dict[str, str]:
    """Return the header that carries a token; none without a token."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


class ClientSession(asyncio.Protocol):
    """A session; `open` creates it."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: Any = None
        self._head = b""
        self._frames = frames.FrameReader(masked=False, max_size=MAX_MESSAGE)
        self._ended: str | None = None

    @classmethod
    async def open(cls, address: Address, token: str | None, timeout: float) -> ClientSession:
        """Open a session.

        Raises:
            ConfigError: The server rejects the token or has no environment there.
            SessionLost: There is no connection; a later attempt may succeed.
        """
        key = frames.new_key()
        headers = {
            "Upgrade": "websocket", "Connection": "Upgrade",
            "Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13", **access_headers(token),
        }  # fmt: skip

        async def connect() -> ClientSession:
            _, session = await loop.create_connection(
                lambda: cls(key), address.host, address.port, ssl=address.tls
            )
            try:
                session._transport.write(address.request("/ws", headers))
                await session._opened
            except BaseException:
                session.close()
                raise
            return session

        loop = asyncio.get_running_loop()
        try:
            return await asyncio.wait_for(connect(), timeout)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(f"the certificate of {address.host} is not trusted: {error}") from error
        except (OSError, asyncio.TimeoutError) as error:
            raise SessionLost(f"no connection to {address.host}:{address.port}: {error!r}") from error

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
            ServerError: The server answered with another error.
            EnvError: The answer violates the protocol or did not arrive in time; the session is closed.
        """
        if self._ended is not None:
            raise SessionLost(self._ended)
        self._answer = self._loop.create_future()
        message = json.dumps({"type": kind, "data": data}).encode()
        self._transport.write(frames.encode_frame(message, mask=True))
        try:
            payload = await asyncio.wait_for(self._answer, timeout)
        except asyncio.TimeoutError:
            self.close()  # the answer may still arrive
            raise EnvError(f"the server did not answer within {timeout:g} s") from None
        except BaseException:
            self.close()
            raise
        finally:
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
        if code in (wire.SESSION_ERROR, wire.CAPACITY_REACHED):
            raise SessionLost(f"{text} ({code})")
        raise ServerError(f"{text} ({code})", code)

    def close(self) -> None:
        """End the session. May be called more than once."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(
                frames.encode_frame(frames.encode_close(frames.NORMAL), frames.CLOSE, mask=True)
            )
            self._transport.close()
        self._end("the session is closed")

    # -- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"the server closed the connection{'' if error is None else f': {error!r}'}")

    def data_received(self, data: bytes) -> None:
        if not self._opened.done():
            self._head += data
            head, separator, data = self._head.partition(b"\r\n\r\n")
            if not separator:
                if len(self._head) > 1 << 16:
                    self._end("the server sent no HTTP response")
                    self._transport.abort()
                return
            self._head = b""
            self._check_handshake(head)
        try:
            messages = self._frames.feed(data)
        except frames.FrameError as error:
            self._end(f"the server broke the WebSocket protocol: {error}")
            self._transport.abort()
            return
        for opcode, payload in messages:
            if opcode == frames.PING:
                self._transport.write(frames.encode_frame(payload, frames.PONG, mask=True))
            elif opcode == frames.CLOSE:
                code, reason = int.from_bytes(payload[:2], "big"), payload[2:].decode(errors="replace")
                text = f"the server closed the session ({code} {reason})"
                self._end(text, EnvError(text) if code in _OUR_FAULT else None)
                self._transport.close()
            elif opcode <= frames.BINARY and self._answer is not None and not self._answer.done():
                self._answer.set_result(payload)
            elif opcode <= frames.BINARY and b"CAPACITY_REACHED" in payload:
                self._end("the server is at capacity")

    def _check_handshake(self, head: bytes) -> None:
        status, _, headers = head.decode("latin-1").partition("\r\n")
        code = status.split(" ")[1:2]
        if code == ["101"]:
            if frames.accept_key(self._key).lower() not in headers.lower():
                self._opened.set_exception(ConfigError("the server does not speak the WebSocket protocol"))
            else:
                self._opened.set_result(None)
        elif code in (["401"], ["403"], ["404"]):
            self._opened.set_exception(
                ConfigError(f"the server rejected the session: {status}; check the address and the token")
            )
        else:
            self._opened.set_exception(SessionLost(f"the server rejected the session: {status}"))

    def _end(self, reason: str, error: Exception | None = None) -> None:
        if self._ended is not None:
            return
        self._ended = reason
        for future in (self._opened, self._answer):
            if future is not None and not future.done():
                future.set_exception(error or SessionLost(reason))
