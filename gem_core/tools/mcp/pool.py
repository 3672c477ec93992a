"""Sessions with MCP servers: opened when needed, shared or one an episode, opened anew after a crash.

Everything here runs on the background loop of `gem_core.tools.loop`: a session belongs to the event loop that
it was opened on, and episodes come from any. There is one pool for each server in a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

import anyio

from gem_core.errors import ServiceError
from gem_core.tools import loop
from gem_core.tools.mcp import sdk
from gem_core.tools.mcp.config import ServerConfig

_LONGEST_PAUSE = 2.0
_MOST_ATTEMPTS = 3
_CLOSING = 15.0
"""Seconds for a session to end in order."""


class Reply(NamedTuple):
    """What came of a call."""

    content: Any
    """The package's result; None when there is none."""
    problem: str = ""
    """Why there is none."""


class _NotMade(Exception):
    """The call did not reach the server and can be made again."""


class _Lost(Exception):
    """The server went away during the call."""


class Session:
    """One session; a task of its own holds it, because its parts have to be closed by who opened them."""

    def __init__(self, config: ServerConfig, client: Any) -> None:
        self._config, self._client = config, client
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session: Any = None
        self.tools: list[Any] = []
        self._said = _LastWords()
        self._under_way = 0
        self.dead = False
        """Whether no new call is to be made."""
        self.failure: BaseException | None = None
        """Why it could not be opened."""

    async def open(self, seconds: float) -> None:
        """Connect.

        Raises:
            ServiceError: It does not work, or not in time.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(ready))
        try:
            await asyncio.wait_for(asyncio.shield(ready), seconds)
        except asyncio.TimeoutError:
            self._task.cancel()
            raise ServiceError(f"{self._config} did not answer within {seconds:.3g} seconds") from None
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """Result of one call.

        Raises:
            _NotMade, _Lost: The session is of no more use; whether the call was made tells which.
            asyncio.TimeoutError: No answer in time.
            Exception: What the package raises for an error that the server reports.
        """
        if self.dead:
            raise _NotMade("the session has ended")
        self._under_way += 1
        answer = asyncio.ensure_future(self._session.call_tool(name, dict(arguments)))
        try:
            await asyncio.wait({answer, self._gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if self._gone.done():
                raise _Lost("the connection has ended")
            raise asyncio.TimeoutError
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self.close()
            raise _NotMade("the connection has ended") from error
        except sdk.Error as error:
            code = sdk.error_code(error)
            if code in (sdk.NOT_SENT, sdk.NO_SESSION):
                self.dead = True  # other calls may find out for themselves
                raise _NotMade(str(error)) from error
            if code in (sdk.BROKEN, sdk.CLOSED):
                if code == sdk.CLOSED or not self._config.url:
                    self.close()
                raise _Lost(str(error)) from error
            raise
        finally:
            answer.cancel()
            self._under_way -= 1
            if self.dead and not self._under_way:
                self.close()

    @property
    def gone(self) -> bool:
        """Whether everything of it is closed."""
        return self._task.done()

    def close(self) -> None:
        """Let the session go, without waiting."""
        self.dead = True
        if not self._gone.done():
            self._gone.set_result(None)

    async def closed(self) -> None:
        """Wait until everything is closed; what takes too long is cut short."""
        done, _ = await asyncio.wait([self._task], timeout=_CLOSING)
        if not done:
            self._task.cancel()

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                session = await stack.enter_async_context(
                    sdk.open_session(self._transport(stack), self.close)
                )
                self._session = session
                self.tools = await sdk.list_tools(session)
                if not ready.done():
                    ready.set_result(None)
                await self._gone
        except BaseException as error:
            if not ready.done():
                self.failure, reason = _innermost(error)
                if said := self._said.last_line():
                    reason = f"{reason}; the last that it said is: {said}"
                ready.set_exception(ServiceError(f"{self._config} cannot be reached: {reason}"))
                ready.exception()  # read, or a caller that was cancelled would leave a complaint
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self.close()

    def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        config = self._config
        if config.url is not None:
            return sdk.http_transport(config.url, self._client)
        errors = stack.enter_context(self._said)
        return sdk.stdio_transport(str(config.command), list(config.args), config.env, config.cwd, errors)


class _LastWords:
    """Where a server writes its errors; the end is kept, for a message."""

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
        """The last line that is not empty."""
        lines = self._kept.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._read, 2**16):
                self._kept = (self._kept + part)[-self._KEPT :]
            asyncio.get_running_loop().remove_reader(self._read)  # nobody can write any more


class Pool:
    """The sessions with one server."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.opened = 0
        """Sessions that were ever opened."""
        self._shared: Session | None = None
        self._sessions: set[Session] = set()
        self._opening = asyncio.Lock()
        self._calls = asyncio.Semaphore(config.concurrency)
        self._places = asyncio.Semaphore(config.max_sessions)
        self._client = sdk.http_client(config.headers, config.concurrency) if config.url else None

    async def tools(self) -> list[Any]:
        """What the server offers.

        Raises:
            ServiceError: It cannot be reached.
        """
        session = await self._alive(None, self.config.connect_timeout)
        return session.tools

    async def call(self, holder: Holder | None, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Call a tool; in the session of `holder`, or in the shared one."""
        last = ""
        for _ in range(_MOST_ATTEMPTS):
            try:
                session = await self._alive(holder, self.config.connect_timeout)
                async with self._calls:
                    return Reply(await session.call(name, arguments, self.config.timeout))
            except ServiceError as error:
                return Reply(None, str(error))
            except _NotMade as error:
                last = str(error)
            except _Lost as error:
                kept = " What it kept of this episode is gone." if holder is not None else ""
                return Reply(None, f"the server went away during the call ({error}).{kept}")
            except asyncio.TimeoutError:
                return Reply(None, f"no answer within {self.config.timeout:g} seconds")
            except sdk.Error as error:
                return Reply(None, str(error))
        return Reply(None, f"the server was not reached in {_MOST_ATTEMPTS} attempts ({last})")

    async def release(self, holder: Holder) -> None:
        """Close the session of an episode that has ended."""
        async with holder.lock:
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

    async def _alive(self, holder: Holder | None, seconds: float) -> Session:
        """A session that works as far as is known, opened if need be."""
        if holder is None:
            async with self._opening:
                if self._shared is None or self._shared.dead:
                    self._shared = await self._open(seconds)
                return self._shared
        async with holder.lock:
            if holder.session is not None and not holder.session.dead:
                return holder.session
            if holder.ended:
                raise ServiceError("the episode has ended")
            if holder.session is None:
                await self._place(seconds)
            try:
                holder.session = await self._open(seconds)
            except BaseException:
                holder.session = None
                self._places.release()
                raise
            return holder.session

    async def _place(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._places.acquire(), seconds)
        except asyncio.TimeoutError:
            raise ServiceError(
                f"{self.config}: all {self.config.max_sessions} sessions are taken by other episodes "
                f"for {seconds:g} seconds; raise max_sessions"
            ) from None

    async def _open(self, seconds: float) -> Session:
        """A new session; a server that is down is waited for."""
        end, pause = time.monotonic() + seconds, 0.05
        while True:
            session = Session(self.config, self._client)
            try:
                await session.open(max(0.01, end - time.monotonic()))
                self.opened += 1
                self._sessions = {other for other in self._sessions if not other.gone} | {session}
                return session
            except ServiceError:
                if time.monotonic() + pause >= end or isinstance(session.failure, FileNotFoundError):
                    raise
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)


class Holder:
    """The session of one episode, once it has one."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.session: Session | None = None
        self.lock = asyncio.Lock()
        self.ended = False


_pools: dict[str, Pool] = {}
_lock = threading.Lock()


def pool_of(config: ServerConfig) -> Pool:
    """The pool of this process for a server."""
    with _lock:
        if config.key not in _pools:
            _pools[config.key] = Pool(config)
        return _pools[config.key]


def close_pools() -> None:
    """Close all shared sessions; the next call opens them anew."""
    with _lock:
        pools = list(_pools.values())
        _pools.clear()
    loop.run(_close_all(pools))


async def _close_all(pools: list[Pool]) -> None:
    await asyncio.gather(*(pool.close() for pool in pools))


def _forget() -> None:
    """In a forked child: the sessions are the parent's."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_forget)


def _innermost(error: BaseException) -> tuple[BaseException, str]:
    """The first real error in a group of errors, and a line on it."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return error, " ".join(f"{type(error).__name__}: {error}".split())[:300]
