"""The checks of our servers before an ASGI application that brings its own HTTP server, uvicorn."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias, cast

from gem_core._util.waiting import Overdue, within
from gem_envs.serving._access import Access, RequestRefused
from gem_envs.serving._guard import ConnectionLimits, Guard, connection_key

AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
Send: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]
Application: TypeAlias = Callable[[AsgiMessage, Receive, Send], Awaitable[None]]

MOST_BYTES = 4 << 20
"""Maximum size in bytes of a body."""
GRACE_SECONDS = 10
"""Number of seconds that running requests have to end when the server ends."""
BODY_SECONDS = 30.0
"""Number of seconds in which a body must arrive."""


class CheckedApplication:
    """An application whose requests are checked, and whose bodies are read before it is called.

    Args:
        application: The application. It gets only HTTP requests and the events of its lifespan.
        access: Who may ask.
        guard: The connections of its server.
    """

    def __init__(self, application: Application, access: Access, guard: Guard) -> None:
        self._application, self._access, self._guard = application, access, guard

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            self._check(scope)
            connection = self._guard.connections.get((scope["client"], scope["server"]))
            if connection is None:
                return  # the client is gone
            connection.admit()
            try:
                body = await within(BODY_SECONDS, _read_body(scope, receive))
                await self._application(scope, _replay(body, receive), send)
            except Overdue:
                raise RequestRefused(408, f"the body did not arrive within {BODY_SECONDS:g} s") from None
            finally:
                connection.rest()
        except RequestRefused as refusal:
            await _refuse(refusal, send)

    def _check(self, scope: AsgiMessage) -> None:
        values: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"authorization": []}
        for name, value in scope["headers"]:
            if name.lower() in values:
                values[name.lower()].append(value.decode("latin-1"))
        if not scope["raw_path"].startswith(b"/") or scope["raw_path"].startswith(b"//"):
            raise RequestRefused(400, "expected a path such as /mcp as the target of the request")
        self._access.check(scope["path"], *values.values())


async def _read_body(scope: AsgiMessage, receive: Receive) -> bytes | None:
    """Return the body of a request; None if the client has disconnected."""
    declared = dict(scope["headers"]).get(b"content-length", b"0")
    if not declared.isdigit() or len(declared) > 12 or int(declared) > MOST_BYTES:
        raise _too_long()
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BYTES:
            raise _too_long()
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_long() -> RequestRefused:
    return RequestRefused(413, f"a body has at most {MOST_BYTES} bytes here")


def _replay(body: bytes | None, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body."""
    waiting: list[AsgiMessage] = [{"type": "http.request", "body": body or b"", "more_body": False}]
    if body is None:
        waiting = [{"type": "http.disconnect"}]

    async def replay() -> AsgiMessage:
        return waiting.pop() if waiting else await receive()

    return replay


async def _refuse(refusal: RequestRefused, send: Send) -> None:
    body = json.dumps({"error": str(refusal)}).encode()
    headers = [
        (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]  # fmt: skip
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run_checked(application: Application, access: Access, host: str, port: int) -> None:
    """Serve an application until Ctrl-C or SIGTERM.

    Args:
        application: The application.
        access: Who may ask.
        host: Address to listen on.
        port: Port to listen on.

    Raises:
        OSError: The port is taken.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    guard = Guard(ConnectionLimits(), connection_key)

    def protocol(**settings: Any) -> asyncio.Protocol:
        return guard.wrap(lambda: H11Protocol(**settings))()

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=1024) as listener:
        checked: Any = CheckedApplication(application, access, guard)
        config = uvicorn.Config(
            checked, http=cast(Any, protocol), ws="none", log_level="warning", timeout_keep_alive=300,
            h11_max_incomplete_event_size=16 << 10, proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )  # fmt: skip
        uvicorn.Server(config).run([listener])
