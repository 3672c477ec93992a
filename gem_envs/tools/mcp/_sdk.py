"""One interface to versions 1 and 2 of the official package ``mcp``.

Version 2 renamed the server class and the fields of results, and changed its HTTP library. Sessions are the
same in both.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from gem_core.errors import MissingDependency
from gem_envs.serving._access import Access
from gem_envs.serving._asgi import run_checked
from gem_envs.tools.mcp._results import SCHEMA, readable

F = TypeVar("F", bound=Callable[..., Any])
MOST_SESSIONS = 16_384
"""Maximum number of sessions of a server over HTTP."""
CLOSED = -32000
"""Code of the package's own error for a session whose connection ended."""
_NO_METHOD = -32601
"""Code of the error of a server that does not know a method."""

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

__all__ = ["ClientSession", "Context", "Error", "Server", "ToolError", "http", "streamable_http_client"]
# gem_core's tools raise `ToolError`, because version 2 hides the text of other exceptions from the client.


# -- clients ----------------------------------------------------------------------------------


@asynccontextmanager
async def open_session(
    streams: AbstractAsyncContextManager[Any], on_end: Callable[[], None]
) -> AsyncIterator[ClientSession]:
    """Open a session over a transport; `on_end` is called when the server closes its side."""
    async with streams as opened:
        read, write = opened[0], opened[1]
        async with ClientSession(_Watched(read, on_end), write) as session:
            try:
                await session.initialize()
            except Error as error:
                if not hasattr(session, "discover") or error_code(error) not in (_NO_METHOD, -32022):
                    raise
                await session.discover()  # a server that supports only the stateless protocol
            yield session


def stdio_transport(
    command: str, args: list[str], env: Mapping[str, str] | None, cwd: str | None, errlog: Any
) -> AbstractAsyncContextManager[Any]:
    """Start a server as a process and communicate over its pipes."""
    ours = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    parameters = StdioServerParameters(command=command, args=args, env={**ours, **(env or {})}, cwd=cwd)
    return stdio_client(parameters, errlog=errlog)


def error_code(error: Exception) -> int:
    """Return the JSON-RPC code of an error of the package."""
    code: int = getattr(error, "error").code  # noqa: B009  # the class differs between the versions
    return code


def tool_schema(tool: Any) -> dict[str, Any]:
    """Return the JSON schema of the arguments of a tool."""
    schema: dict[str, Any] = tool.meta[SCHEMA]
    return schema


def is_error(result: Any) -> bool:
    """Return whether the server reports that a call failed."""
    return bool(result.is_error if MAJOR >= 2 else result.isError)


async def list_tools(session: ClientSession) -> list[Any]:
    """Return all tools of a server, requested page by page; none if it does not serve tools."""
    tools: list[Any] = []
    cursor: str | None = None
    seen: set[str | None] = set()
    while cursor not in seen:
        seen.add(cursor)
        try:
            page = await session.list_tools(**_page(cursor))
        except Error as error:
            if error_code(error) != _NO_METHOD:
                raise
            break
        tools += page.tools
        cursor = page.next_cursor if MAJOR >= 2 else page.nextCursor  # type: ignore[attr-defined]
        if not cursor:
            break
    return tools


def _page(cursor: str | None) -> dict[str, Any]:
    if cursor is None:
        return {}
    return {"params": importlib.import_module("mcp.types").PaginatedRequestParams(cursor=cursor)}


class _Watched:
    """Read stream of a transport that reports when it ends, which an idle session would not notice.

    It also puts each result into a form that the package accepts; see `gem_envs.tools.mcp._results`.
    """

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream, self._on_end = stream, on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return _with_readable_result(await self._stream.__anext__())
        except (StopAsyncIteration, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise

    async def receive(self) -> Any:
        try:
            return _with_readable_result(await self._stream.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *args: Any) -> Any:
        return await self._stream.__aexit__(*args)


def _with_readable_result(item: Any) -> Any:
    """Return a message of the server with a result that the package accepts."""
    message: Any = getattr(item, "message", None)
    message = getattr(message, "root", message)  # version 1 wraps messages
    if isinstance(getattr(message, "result", None), dict):
        message.result = readable(message.result)
    return item


# -- servers ----------------------------------------------------------------------------------


def tool(server: Any) -> Callable[[F], F]:
    """Return a decorator that makes a function, which returns text, a tool of a server."""
    decorator: Callable[[F], F] = server.tool(structured_output=False)
    return decorator


def session_of(context: Any) -> str:
    """Return the id of a request's session; empty over pipes and in the stateless protocol."""
    request = context.request_context.request
    return "" if request is None else str(request.headers.get("mcp-session-id", ""))


def over_http(context: Any) -> bool:
    """Return whether a request came over HTTP, where several clients may use the server."""
    return context.request_context.request is not None


def http_app(server: Any) -> Any:
    """Return the ASGI application of a server; its path is ``/mcp``.

    The package checks neither Host nor Origin, because `CheckedApplication` does.
    """
    security = importlib.import_module("mcp.server.transport_security").TransportSecuritySettings(
        enable_dns_rebinding_protection=False
    )
    if MAJOR >= 2:
        known = inspect.signature(server.streamable_http_app).parameters
        sessions = {"max_sessions": MOST_SESSIONS} if "max_sessions" in known else {}
        return server.streamable_http_app(transport_security=security, **sessions)
    if hasattr(server.settings, "max_sessions"):
        server.settings.max_sessions = MOST_SESSIONS
    server.settings.transport_security = security
    return server.streamable_http_app()


def run_http(
    server: Any,
    host: str,
    port: int,
    token: str | None = None,
    hosts: Iterable[str] = (),
    public: bool = False,
) -> None:
    """Serve over streamable HTTP until Ctrl-C or SIGTERM.

    Args:
        server: The server.
        host: Address to listen on.
        port: Port to listen on.
        token: Text that clients must send as ``Authorization: Bearer TOKEN``; None admits everyone.
        hosts: Further names, without port, that clients may use for the server; see `Access`.
        public: Whether an address other than loopback may be served without a token.

    Raises:
        ConfigError: The address is not loopback and there is no token.
        OSError: The port is taken.
    """
    run_checked(http_app(server), Access.for_address(host, token, hosts, public), host, port)
