"""One session with an MCP server: the task that owns it, its calls, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any, TextIO

import anyio

from gem_core._observations import encodable
from gem_core._util.messages import error_line
from gem_core._util.places import on_clock
from gem_core.errors import ServiceError
from gem_envs.tools.mcp import _sdk
from gem_envs.tools.mcp import _transport as transport
from gem_envs.tools.mcp._config import ServerConfig

_CLOSING = 15.0
"""Seconds that a session has to end cleanly."""


class NotSent(Exception):
    """Raised when a call did not reach the server and can be repeated."""


class Lost(Exception):
    """Raised when the server disconnects during a call."""


class McpSession:
    """One session, held by a dedicated task, because the task that opens its parts must also close them."""

    def __init__(self, config: ServerConfig, client: Any) -> None:
        self._config, self._client = config, client
        self._ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session: Any = None
        self.tools: list[Any] = []
        self._stderr = _StderrTail()
        self._calls_in_progress = 0
        self.dead = False
        """Whether the session accepts no new calls."""
        self.failure: BaseException | None = None
        """Why the session could not be opened; None if it was."""

    async def open(self, seconds: float) -> None:
        """Connect.

        Raises:
            ServiceError: The connection fails or takes too long.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with on_clock(None):  # the session outlives the call that opens it
            self._task = asyncio.create_task(self._hold(ready))
        try:
            await asyncio.wait({ready}, timeout=seconds)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if not ready.done():
            self._task.cancel()
            raise ServiceError(f"{self._config} did not answer within {seconds:.3g} seconds")
        ready.result()

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """Make one call and return its result. Surrogates in the arguments are replaced as in `encodable`.

        Raises:
            NotSent: The session is dead, and the call did not reach the server.
            Lost: The session is dead, and the call may have reached the server.
            asyncio.TimeoutError: No answer arrived in time.
            Exception: The package's exception for an error that the server reports.
        """
        if self.dead:
            raise NotSent("the session has ended")
        self._calls_in_progress += 1
        sent = json.loads(encodable(json.dumps(dict(arguments), ensure_ascii=False)))
        answer = asyncio.ensure_future(self._session.call_tool(name, sent))
        try:
            await asyncio.wait({answer, self._ending}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if self._ending.done():
                raise Lost("the connection has ended")
            raise asyncio.TimeoutError
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self.close()
            raise NotSent("the connection has ended") from error
        except _sdk.Error as error:
            code = _sdk.error_code(error)
            if code in (transport.NOT_SENT, transport.NO_SESSION):
                self.dead = True  # calls in progress finish on their own
                raise NotSent(str(error)) from error
            if code in (transport.BROKEN, _sdk.CLOSED):
                if code == _sdk.CLOSED or not self._config.url:
                    self.close()
                raise Lost(str(error)) from error
            raise
        finally:
            answer.cancel()
            self._calls_in_progress -= 1
            if self.dead and not self._calls_in_progress:
                self.close()

    @property
    def gone(self) -> bool:
        """Whether all resources of the session are closed."""
        return self._task.done()

    def close(self) -> None:
        """End the session without waiting until it is closed."""
        self.dead = True
        if not self._ending.done():
            self._ending.set_result(None)

    async def closed(self) -> None:
        """Wait until everything is closed; cancel the session's task if that takes too long."""
        done, _ = await asyncio.wait([self._task], timeout=_CLOSING)
        if not done:
            self._task.cancel()

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                session = await stack.enter_async_context(
                    _sdk.open_session(self._transport(stack), self.close)
                )
                self._session = session
                self.tools = await _sdk.list_tools(session)
                if not ready.done():
                    ready.set_result(None)
                await self._ending
        except BaseException as error:
            if not ready.done():
                self.failure, reason = _innermost(error)
                if line := self._stderr.last_line():
                    reason = f"{reason}; its last output is: {line}"
                ready.set_exception(ServiceError(f"{self._config} cannot be reached: {reason}"))
                ready.exception()  # mark as retrieved, in case the caller was canceled
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self.close()

    def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        config = self._config
        if config.url is not None:
            return transport.http_transport(config.url, self._client)
        errors = stack.enter_context(self._stderr)
        return _sdk.stdio_transport(str(config.command), list(config.args), config.env, config.cwd, errors)


class _StderrTail:
    """Pipe for a server's standard error, which keeps the last output for a message."""

    _KEPT = 4096

    def __init__(self) -> None:
        self._kept = b""

    def __enter__(self) -> TextIO:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        asyncio.get_running_loop().add_reader(self._read, self._take)
        self._write = open(write, "w")
        return self._write

    def __exit__(self, *_: object) -> None:
        self._write.close()
        self._take()
        asyncio.get_running_loop().remove_reader(self._read)
        os.close(self._read)

    def last_line(self) -> str:
        """Return the last line that is not empty."""
        lines = self._kept.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._read, 2**16):
                self._kept = (self._kept + part)[-self._KEPT :]
            asyncio.get_running_loop().remove_reader(self._read)  # no writer is left


def _innermost(error: BaseException) -> tuple[BaseException, str]:
    """Return the first error inside nested exception groups, and a one-line description."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return error, error_line(error, 300)
