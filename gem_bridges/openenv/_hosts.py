"""Hosts that run sessions in the server's own process: on its event loop or in threads."""

from __future__ import annotations

import abc
import asyncio
import functools
from collections.abc import Callable
from typing import Any

from gem_bridges.openenv import _wire
from gem_bridges.openenv._sessions import OpenEnvSession, SessionReply
from gem_core import Env, Wrapper
from gem_core._util.closing import Closing
from gem_core._util.messages import error_line
from gem_core._util.owners import calls_of
from gem_core._util.threads import ThreadCall
from gem_core._util.waiting import Overdue
from gem_envs._closer import Closer


class SessionHost(abc.ABC):
    """Runs the sessions of one environment. A seat is the host's side of a session.

    Attributes:
        lost_workers: Number of worker processes that died or were killed.
    """

    lost_workers = 0

    async def start(self) -> None:  # noqa: B027 - most hosts have nothing to start
        """Get ready for sessions."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Free all resources, after every seat was closed; wait for a limited time until that is done."""

    @abc.abstractmethod
    def open(self) -> Any:
        """Return a new seat."""

    @abc.abstractmethod
    async def answer(self, seat: Any, payload: bytes) -> SessionReply:
        """Answer one message of a session; at most one at a time for each seat."""

    @abc.abstractmethod
    def close(self, seat: Any) -> None:
        """End a session, which may have an unanswered message. Environments are not closed by this thread."""


class LocalHost(SessionHost):
    """A host whose sessions run in this process.

    Args:
        make: Builds an environment.
        env_id: Its id.
    """

    def __init__(self, make: Callable[[], Env], env_id: str) -> None:
        self._make, self._env_id = make, env_id
        self._closer = Closer()

    async def stop(self) -> None:
        await self._closer.finished()


class InlineHost(LocalHost):
    """Runs sessions on the event loop, for environments whose steps take microseconds."""

    def open(self) -> OpenEnvSession:
        return OpenEnvSession(self._make, self._env_id, self._dispose)

    async def answer(self, seat: OpenEnvSession, payload: bytes) -> SessionReply:
        return seat.answer(payload)

    def close(self, seat: OpenEnvSession) -> None:
        seat.close()

    def _dispose(self, env: Env) -> None:
        if has_close(env):
            self._closer.start(env.close)


class LocalSeat:
    """A session whose messages may take time.

    Attributes:
        session: The session; replaced if a call of its environment takes too long.
    """

    __slots__ = ("session",)

    def __init__(self, session: OpenEnvSession) -> None:
        self.session = session


class _Deadline:
    """Cancels the current task after `timeout` seconds, unless its timer is canceled before."""

    __slots__ = ("_task", "passed", "timer")

    def __init__(self, timeout: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.passed = False
        self.timer = asyncio.get_running_loop().call_later(timeout, self._pass)

    def _pass(self) -> None:
        self.passed = True
        self._task.cancel()


class TimedHost(LocalHost):
    """A host that limits the time of each message.

    An environment is closed once the calls that still work for it in threads have returned, abandoned or not.

    Args:
        make: Builds an environment.
        env_id: Its id.
        timeout: Maximum number of seconds for one message; None means no limit.
    """

    def __init__(self, make: Callable[[], Env], env_id: str, timeout: float | None) -> None:
        super().__init__(make, env_id)
        self._timeout = timeout

    def open(self) -> LocalSeat:
        return LocalSeat(OpenEnvSession(self._make, self._env_id))

    def close(self, seat: LocalSeat) -> None:
        self._closer.start(seat.session.close, owner=seat.session)

    def _too_slow(self, seat: LocalSeat) -> SessionReply:
        self.close(seat)
        seat.session = OpenEnvSession(self._make, self._env_id)
        return too_slow(self._timeout)


class AsyncHost(TimedHost):
    """Awaits the async methods of environments on the event loop, any number of them at once."""

    async def answer(self, seat: LocalSeat, payload: bytes) -> SessionReply:
        with calls_of(seat.session):
            if self._timeout is None:
                return await seat.session.answer_async(payload)
            deadline = _Deadline(self._timeout)  # `within` would create a task for each message
            try:
                return await seat.session.answer_async(payload)
            except asyncio.CancelledError:
                if not deadline.passed:
                    raise
                return self._too_slow(seat)
            finally:
                deadline.timer.cancel()


class ThreadHost(TimedHost):
    """Runs sessions in the threads for environments, for those that wait (see `set_env_threads`)."""

    async def answer(self, seat: LocalSeat, payload: bytes) -> SessionReply:
        with calls_of(seat.session):
            call = ThreadCall(functools.partial(seat.session.answer, payload))
        try:
            reply, error = await call.outcome(self._timeout)
        except Overdue:
            return self._too_slow(seat)
        if reply is None:
            raise RuntimeError(f"Session.answer() failed: {error!r}")
        return reply


def local_host(make: Callable[[], Env], env_id: str, env: Env, timeout: float | None) -> SessionHost:
    """Return a host in this process.

    Args:
        make: Builds an environment.
        env_id: Its id.
        env: One of the environments, which may be closed.
        timeout: Maximum number of seconds for one message off the event loop; None means no limit.
    """
    if not env.blocking:
        return InlineHost(make, env_id)
    if type(env.unwrapped).astep is not Env.astep:
        return AsyncHost(make, env_id, timeout)
    return ThreadHost(make, env_id, timeout)


def has_close(env: Env) -> bool:
    """Return whether an environment or one of its wrappers has something to close."""
    while isinstance(env, Wrapper):
        if type(env).close is not Wrapper.close:
            return True
        env = env.env
    return type(env).close is not Closing.close


def lost(text: str, code: str) -> SessionReply:
    """Return the answer for a session that lost its episode."""
    return SessionReply(
        _wire.encode(_wire.error_message(f"{text}; a reset starts a new episode", code)), code, False
    )


def too_slow(timeout: float | None) -> SessionReply:
    """Return the answer for a call that exceeded the time limit."""
    return lost(f"the environment did not answer within {timeout:g} s", _wire.EXECUTION_ERROR)


def unexpected(error: BaseException) -> SessionReply:
    """Return the answer for a failure of the server itself."""
    return lost(f"the server failed: {error_line(error)}", _wire.SESSION_ERROR)


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
