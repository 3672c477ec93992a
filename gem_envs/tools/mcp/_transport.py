"""Streamable HTTP for MCP sessions, with persistent connections and failures confined to one call."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

from gem_core._util.foreign_json import read_json
from gem_core._util.messages import error_line
from gem_envs._proxies import proxy_for
from gem_envs.tools.mcp._sdk import http, streamable_http_client

NOT_SENT, BROKEN, REFUSED, NO_SESSION = -32101, -32102, -32103, -32104
"""Codes of the errors from `_JsonErrors`: the server was not reached; the connection broke during the call;
an error status; the server does not know the session, or no longer. The first and the last mean that the call
was not made."""
_DRAIN = 5.0
"""Seconds that a server has to end a stream of events after the answer."""


@asynccontextmanager
async def http_transport(url: str, client: Any) -> AsyncIterator[Any]:
    """Connect to a server over streamable HTTP with a client from `http_client`."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(streamable_http_client(url, http_client=client))


def http_client(url: str, headers: Mapping[str, str] | None, connections: int) -> Any:
    """Return a client with persistent connections, for all sessions with the server at `url`."""
    limits = http.Limits(
        max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=120.0
    )
    inner = http.AsyncHTTPTransport(retries=2, limits=limits, proxy=proxy_for(url))
    timeout = http.Timeout(30.0, read=None, pool=None)  # a call has its own time limit
    return http.AsyncClient(
        transport=_json_errors(inner), timeout=timeout, headers=dict(headers or {}), follow_redirects=False
    )


def _json_errors(inner: Any) -> Any:
    """Return a transport that turns the failure of one request into an error answer to this request.

    Without it, version 1 of the package ends the whole session, or waits for an answer that will not come.
    The stream for messages initiated by the server is declined, because it would occupy a connection.
    """

    class Transport(http.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            if request.method == "GET":
                return http.Response(405, request=request)
            number = _request_number(await request.aread()) if request.method == "POST" else None
            try:
                response = await inner.handle_async_request(request)
            except http.TransportError as error:
                if request.method == "DELETE":
                    return http.Response(204, request=request)
                if number is None:
                    raise
                unsent = isinstance(error, (http.ConnectError, http.ConnectTimeout))
                return _answer(request, number, NOT_SENT if unsent else BROKEN, error_line(error, 300))
            if request.method == "DELETE" and response.status_code >= 400:  # the session has already ended
                await response.aclose()
                return http.Response(204, request=request)
            if number is None:
                return response
            if response.status_code < 300:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    response.stream = _stream(response.stream, number)
                return response
            body = await response.aread()
            await response.aclose()
            if response.status_code == 404 and "mcp-session-id" in request.headers:
                return _answer(request, number, NO_SESSION, "the server does not know the session")
            message = _error_message(body) or f"status {response.status_code}"
            return _answer(request, number, REFUSED, message)

        async def aclose(self) -> None:
            await inner.aclose()

    return Transport()


def _stream(inner: Any, number: Any) -> Any:
    """Return a stream of events that ends with an answer even if its connection breaks first.

    The package closes the stream once it has the answer. Closing it before its end would close the connection
    too, so the rest of the stream is read first; the server ends it after the answer.
    """

    class Stream(http.AsyncByteStream):  # type: ignore[misc]
        def __init__(self) -> None:
            self._parts = inner.__aiter__()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                while True:
                    yield await self._parts.__anext__()
            except StopAsyncIteration:
                return
            except http.TransportError as error:
                data = json.dumps(_error(number, BROKEN, error_line(error, 300)))
                yield f"\n\nevent: message\ndata: {data}\n\n".encode()

        async def aclose(self) -> None:
            with contextlib.suppress(StopAsyncIteration, http.TransportError), anyio.move_on_after(_DRAIN):
                while True:
                    await self._parts.__anext__()
            await inner.aclose()

    return Stream()


def _request_number(body: bytes) -> Any:
    """Return the id of a JSON-RPC request; None for a message that expects no answer."""
    try:
        message = read_json(body)
    except ValueError:
        return None
    return message.get("id") if isinstance(message, dict) and "method" in message else None


def _answer(request: Any, number: Any, code: int, message: str) -> Any:
    return http.Response(200, json=_error(number, code, message), request=request)


def _error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def _error_message(body: bytes) -> str:
    """Return the message of a JSON-RPC error in the body of a response; empty if there is none."""
    try:
        return str(read_json(body)["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return ""
