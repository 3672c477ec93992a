"""Sessions with MCP servers, shared or one per episode, opened on first use and reopened after a crash.

Everything here runs on the background loop of `gem_envs.tools._loop`, because a session belongs to the event
loop that opened it, while episodes run on any loop. A process has one pool per server.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from gem_core._util.forks import ForkSafeLock, after_fork
from gem_core._util.places import waiting
from gem_core._util.waiting import Overdue, within
from gem_core.errors import ServiceError
from gem_envs.tools import _loop
from gem_envs.tools.mcp import _sdk
from gem_envs.tools.mcp._config import ServerConfig
from gem_envs.tools.mcp._session import Lost, McpSession, NotSent
from gem_envs.tools.mcp._transport import http_client

_LONGEST_PAUSE = 2.0
_MOST_ATTEMPTS = 3


class ToolReply(NamedTuple):
    """Result of a call, or the reason why it failed."""

    content: Any
    """The package's result; None if the call failed."""
    problem: str = ""
    """Why the call failed; empty if it did not."""


class Pool:
    """The sessions with one server."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.opened = 0
        """Number of sessions opened so far."""
        self._shared: McpSession | None = None
        self._sessions: set[McpSession] = set()
        self._attempts = _Attempts()
        self._calls = asyncio.Semaphore(config.concurrency)
        self._places = asyncio.Semaphore(config.max_sessions)
        self._client = http_client(config.url, config.headers, config.concurrency) if config.url else None

    async def tools(self) -> list[Any]:
        """Return the tools of the server.

        Raises:
            ServiceError: The server cannot be reached.
        """
        session = await self._alive(None, self.config.connect_timeout)
        return session.tools

    async def call(self, holder: Holder | None, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Call a tool in the session of `holder`, or in the shared session if `holder` is None."""
        last = ""
        for _ in range(_MOST_ATTEMPTS):
            try:
                session = await self._alive(holder, self.config.connect_timeout)
                with waiting():
                    await self._calls.acquire()
                try:
                    return ToolReply(await session.call(name, arguments, self.config.timeout))
                finally:
                    self._calls.release()
            except ServiceError as error:
                return ToolReply(None, str(error))
            except NotSent as error:
                last = str(error)
            except Lost as error:
                loss = " Its data for this episode may be lost." if holder is not None else ""
                return ToolReply(None, f"the server disconnected during the call ({error}).{loss}")
            except asyncio.TimeoutError:
                return ToolReply(None, f"no answer within {self.config.timeout:g} seconds")
            except _sdk.Error as error:
                return ToolReply(None, str(error))
        return ToolReply(None, f"cannot reach the server in {_MOST_ATTEMPTS} attempts ({last})")

    async def release(self, holder: Holder) -> None:
        """Close the session of an episode that has ended."""
        async with holder.attempts.lock:
            holder.ended = True
            session, holder.session = holder.session, None
            if session is not None:
                session.close()
                await session.closed()
                self._places.release()

    async def close(self) -> None:
        """Close all sessions and the connections."""
        for session in self._sessions:
            session.close()
        await asyncio.gather(*(session.closed() for session in self._sessions))
        if self._client is not None:
            await self._client.aclose()

    async def _alive(self, holder: Holder | None, seconds: float) -> McpSession:
        """Return a session that is not known to be dead; open one if necessary.

        Raises:
            ServiceError: It cannot be opened; all calls that wait for the same attempt share its failure.
        """
        if holder is None:
            async with self._attempts.one():
                if self._shared is None or self._shared.dead:
                    self._shared = await self._open(seconds)
                return self._shared
        async with holder.attempts.one():
            if holder.session is not None and not holder.session.dead:
                return holder.session
            if holder.ended:
                raise ServiceError("the episode has ended")
            if holder.session is None:
                await self._place(seconds)
            try:
                holder.session = await self._fresh(seconds)
            except BaseException:
                holder.session = None
                self._places.release()
                raise
            return holder.session

    async def _fresh(self, seconds: float) -> McpSession:
        """Return a session that no episode has used: the one that listed the tools, else a new one."""
        session, self._shared = self._shared, None
        return await self._open(seconds) if session is None or session.dead else session

    async def _place(self, seconds: float) -> None:
        try:
            with waiting():
                await within(seconds, self._places.acquire(), unused=lambda _: self._places.release())
        except Overdue:
            raise ServiceError(
                f"{self.config}: all {self.config.max_sessions} sessions have been in use by other "
                f"episodes for {seconds:g} seconds; raise max_sessions"
            ) from None

    async def _open(self, seconds: float) -> McpSession:
        """Open a new session, waiting for a server that is down."""
        end, pause = time.monotonic() + seconds, 0.05
        reason: ServiceError | None = None
        while True:
            session = McpSession(self.config, self._client)
            try:
                await session.open(max(0.01, end - time.monotonic()))
                self.opened += 1
                self._sessions = {other for other in self._sessions if not other.gone} | {session}
                return session
            except ServiceError as error:
                if reason is None or session.failure is not None:  # a failure says more than a late answer
                    reason = error
                if time.monotonic() + pause >= end or isinstance(session.failure, FileNotFoundError):
                    raise reason from None
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)


class Holder:
    """The session of one episode, opened by its first call."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.session: McpSession | None = None
        self.attempts = _Attempts()
        self.ended = False


class _Attempts:
    """Attempts to open a session, one at a time; a call that waited for one shares its failure."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._failure: ServiceError | None = None
        self._failed_at = 0.0

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for other attempts, then make one in the ``async with`` block.

        Raises:
            ServiceError: An attempt failed while this call waited for it.
        """
        asked = time.monotonic()
        async with self.lock:
            if self._failure is not None and self._failed_at >= asked:
                raise self._failure
            try:
                yield
            except ServiceError as error:
                self._failure, self._failed_at = error, time.monotonic()
                raise


_pools: dict[str, Pool] = {}
_lock = ForkSafeLock()


def pool_of(config: ServerConfig) -> Pool:
    """Return the pool of this process for a server."""
    with _lock:
        if config.key not in _pools:
            _pools[config.key] = Pool(config)
        return _pools[config.key]


def close_pools() -> None:
    """Close all pools; the next call opens new sessions."""
    with _lock:
        pools = list(_pools.values())
        _pools.clear()
    _loop.run(_close_all(pools))


async def _close_all(pools: list[Pool]) -> None:
    await asyncio.gather(*(pool.close() for pool in pools))


after_fork(_pools.clear)  # their sessions belong to the parent
