"""The official package ``mcp``, versions 1 and 2, behind one face.

Version 2 renamed the server class and the fields of results and changed its HTTP library; sessions are the
same.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from gem_core.errors import MissingDependency

F = TypeVar("F", bound=Callable[..., Any])
NOT_SENT, BROKEN, REFUSED, NO_SESSION = -32101, -32102, -32103, -32104
"""Codes of the errors that `_JsonErrors` makes: the server was not reached; the connection broke during the
call; a status that is an error; the server does not know the session (any more). After the first and the last
the call was not made."""
_DRAIN = 5.0
"""Seconds for a server to end a stream of events after the answer."""
CLOSED = -32000
"""Code of the package's own error for a session whose connection ended."""

try:
    MAJOR = int(version("mcp").partition(".")[0])
    import anyio
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
except (PackageNotFoundError, ImportError) as error:
    raise MissingDependency(
        "MCP needs the package 'mcp', 1.24 or newer: pip install 'gem-core[mcp]'"
    ) from error

if MAJOR >= 2:
    http: Any = importlib.import_module("httpx2")
    _server: Any = importlib.import_module("mcp.server.mcpserver")
    Server, Context = _server.MCPServer, _server.Context
    ToolError: type[Exception] = importlib.import_module("mcp.server.mcpserver.exceptions").ToolError
    Error: type[Exception] = importlib.import_module("mcp").MCPError
else:
    http = importlib.import_module("httpx")
    _server = importlib.import_module("mcp.server.fastmcp")
    Server, Context = _server.FastMCP, _server.Context
    ToolError = importlib.import_module("mcp.server.fastmcp.exceptions").ToolError
    Error = importlib.import_module("mcp").McpError

__all__ = ["ClientSession", "Context", "Error", "Server", "StdioServerParameters", "ToolError"]
# `ToolError` is what a tool of ours raises: version 2 tells the client nothing of other exceptions.


# -- clients ----------------------------------------------------------------------------------


@asynccontextmanager
async def open_session(
    streams: AbstractAsyncContextManager[Any], on_end: Callable[[], None]
) -> AsyncIterator[ClientSession]:
    """A session over a transport, ready for calls; `on_end` is called when the server's side ends."""
    async with streams as opened:
        read, write = opened[0], opened[1]
        async with ClientSession(_Watched(read, on_end), write) as session:
            try:
                await session.initialize()
            except Error as error:
                if not hasattr(session, "discover") or error_code(error) not in (-32601, -32022):
                    raise
                await session.discover()  # a server that speaks the stateless protocol only
            yield session


def stdio_transport(
    command: str, args: list[str], env: Mapping[str, str] | None, cwd: str | None, errlog: Any
) -> AbstractAsyncContextManager[Any]:
    """Start a server as a process and speak to it over its pipes."""
    ours = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    parameters = StdioServerParameters(command=command, args=args, env={**ours, **(env or {})}, cwd=cwd)
    return stdio_client(parameters, errlog=errlog)


@asynccontextmanager
async def http_transport(url: str, client: Any) -> AsyncIterator[Any]:
    """Speak to a server over streamable HTTP, with a client that `http_client` made."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(streamable_http_client(url, http_client=client))


def http_client(headers: Mapping[str, str] | None, connections: int) -> Any:
    """A client whose connections stay open, for all sessions with one server."""
    limits = http.Limits(
        max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=120.0
    )
    inner = http.AsyncHTTPTransport(retries=2, limits=limits)
    timeout = http.Timeout(30.0, read=None, pool=None)  # a call has its own limit of time
    return http.AsyncClient(
        transport=_json_errors(inner), timeout=timeout, headers=dict(headers or {}), follow_redirects=False
    )


def error_code(error: Exception) -> int:
    """Code of an error of the package."""
    code: int = getattr(error, "error").code  # noqa: B009  # the class differs between the versions
    return code


def tool_schema(tool: Any) -> dict[str, Any]:
    """JSON schema of the arguments of a tool."""
    schema: dict[str, Any] = tool.input_schema if MAJOR >= 2 else tool.inputSchema
    return schema


def is_error(result: Any) -> bool:
    """Whether the server says that a call failed."""
    return bool(result.is_error if MAJOR >= 2 else result.isError)


def structured(result: Any) -> Any:
    """The structured content of a result; None when there is none."""
    return result.structured_content if MAJOR >= 2 else result.structuredContent


async def list_tools(session: ClientSession) -> list[Any]:
    """All tools of a server, page by page."""
    tools: list[Any] = []
    cursor: str | None = None
    while True:
        page = await session.list_tools(**_page(cursor))
        tools += page.tools
        cursor = page.next_cursor if MAJOR >= 2 else page.nextCursor  # type: ignore[attr-defined]
        if not cursor:
            return tools


def _page(cursor: str | None) -> dict[str, Any]:
    if cursor is None:
        return {}
    return {"params": importlib.import_module("mcp.types").PaginatedRequestParams(cursor=cursor)}


class _Watched:
    """A transport's read stream that says when it has ended: an idle session does not notice by itself."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream, self._on_end = stream, on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *args: Any) -> Any:
        return await self._stream.__aexit__(*args)


def _json_errors(inner: Any) -> Any:
    """A transport that turns what goes wrong with one request into the answer to this request.

    Left to the package, version 1 ends the whole session for it, or waits for an answer that will not come.
    The stream for messages that the server sends by itself is declined: each would hold a connection.
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
                refused = isinstance(error, (http.ConnectError, http.ConnectTimeout))
                return _answer(request, number, NOT_SENT if refused else BROKEN, _line(error))
            if request.method == "DELETE" and response.status_code >= 400:  # a session that is gone is gone
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
            said = _said(body) or f"status {response.status_code}"
            return _answer(request, number, REFUSED, said)

        async def aclose(self) -> None:
            await inner.aclose()

    return Transport()


def _stream(inner: Any, number: Any) -> Any:
    """A stream of events that ends with an answer, also when its connection breaks before.

    The package closes it once it has the answer, and a stream that is closed before its end takes its
    connection with it: so what is left is read first, which a server ends after the answer.
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
                data = json.dumps(_error(number, BROKEN, _line(error)))
                yield f"\n\nevent: message\ndata: {data}\n\n".encode()

        async def aclose(self) -> None:
            with contextlib.suppress(StopAsyncIteration, http.TransportError), anyio.move_on_after(_DRAIN):
                while True:
                    await self._parts.__anext__()
            await inner.aclose()

    return Stream()


def _request_number(body: bytes) -> Any:
    """The id of a JSON-RPC request; None for anything that wants no answer."""
    try:
        message = json.loads(body)
    except ValueError:
        return None
    return message.get("id") if isinstance(message, dict) and "method" in message else None


def _answer(request: Any, number: Any, code: int, message: str) -> Any:
    return http.Response(200, json=_error(number, code, message), request=request)


def _error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def _said(body: bytes) -> str:
    """The message of a JSON-RPC error that a server sent with its status."""
    try:
        return str(json.loads(body)["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return ""


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


# -- servers ----------------------------------------------------------------------------------


def tool(server: Any) -> Callable[[F], F]:
    """Decorator that makes a function a tool of a server; it returns text."""
    decorator: Callable[[F], F] = server.tool(structured_output=False)
    return decorator


def session_of(context: Any) -> str:
    """The session that a request belongs to; one for all over pipes and in the stateless protocol."""
    request = context.request_context.request
    return "" if request is None else str(request.headers.get("mcp-session-id", ""))


def http_app(server: Any, host: str) -> Any:
    """The web application of a server, for uvicorn; its address ends in ``/mcp``."""
    if MAJOR >= 2:
        known = inspect.signature(server.streamable_http_app).parameters
        return server.streamable_http_app(
            host=host, **({"max_sessions": None} if "max_sessions" in known else {})
        )
    if hasattr(server.settings, "max_sessions"):
        server.settings.max_sessions = None
    if host not in (
        "127.0.0.1",
        "localhost",
        "::1",
    ):  # else it takes requests to this machine's own names only
        server.settings.transport_security = None
    return server.streamable_http_app()


def run_http(server: Any, host: str, port: int) -> None:
    """Serve over streamable HTTP until Ctrl-C or SIGTERM.

    Raises:
        OSError: The port is taken.
    """
    import socket

    import uvicorn

    with socket.create_server((host, port), backlog=1024) as listener:
        config = uvicorn.Config(http_app(server, host), log_level="warning", timeout_keep_alive=300)
        uvicorn.Server(config).run([listener])
