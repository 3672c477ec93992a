"""Hosts that run sessions in the server's own process: on its event loop or in threads."""

from __future__ import annotations

import abc
import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

from gem_core._util.messages import error_line
from gem_core._util.threads import ThreadCall
from gem_core._util.waiting import Overdue
from gem_core.bridges.openenv import wire
from gem_core.bridges.openenv.sessions import Session, SessionReply
from gem_core.core import Env

logger = logging.getLogger(__name__)


class Host(abc.ABC):
    """Runs the sessions of one environment. A seat is the host's side of a session.

    Attributes:
        lost_workers: Number of worker processes that died or were killed.
    """

    lost_workers = 0

    async def start(self) -> None:  # noqa: B027 - most hosts have nothing to start
        """Get ready for sessions."""

    async def stop(self) -> None:  # noqa: B027
        """Free all resources, after every seat was closed."""

    @abc.abstractmethod
    def open(self) -> Any:
        """Return a new seat."""

    @abc.abstractmethod
    async def answer(self, seat: Any, payload: bytes) -> SessionReply:
        """Answer one message of a session; at most one at a time for each seat."""

    @abc.abstractmethod
    def close(self, seat: Any) -> None:
        """End a session, which may have an unanswered message."""


class InlineHost(Host):
    """Runs sessions on the event loop, for environments whose steps take microseconds."""

    def __init__(self, make: Callable[[], Env], env_id: str) -> None:
        self._make, self._env_id = make, env_id

    def open(self) -> Session:
        return Session(self._make, self._env_id)

    async def answer(self, seat: Session, payload: bytes) -> SessionReply:
        return seat.answer(payload)

    def close(self, seat: Session) -> None:
        close_quietly(seat)


class Seat:
    """A session whose messages may take time.

    Attributes:
        session: The session; replaced if a call of its environment takes too long.
    """

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
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


class TimedHost(Host):
    """A host that limits the time of each message.

    Args:
        make: Builds an environment.
        env_id: Its id.
        timeout: Maximum number of seconds for one message; None means no limit.
    """

    def __init__(self, make: Callable[[], Env], env_id: str, timeout: float | None) -> None:
        self._make, self._env_id, self._timeout = make, env_id, timeout

    def _new_session(self) -> Session:
        return Session(self._make, self._env_id)


class AsyncHost(TimedHost):
    """Awaits the async methods of environments on the event loop, any number of them at once."""

    def open(self) -> Seat:
        return Seat(self._new_session())

    async def answer(self, seat: Seat, payload: bytes) -> SessionReply:
        if self._timeout is None:
            return await seat.session.answer_async(payload)
        deadline = _Deadline(self._timeout)  # asyncio.wait_for would create a task for each message
        try:
            return await seat.session.answer_async(payload)
        except asyncio.CancelledError:
            if not deadline.passed:
                raise
            self.close(seat)
            seat.session = self._new_session()
            return too_slow(self._timeout)
        finally:
            deadline.timer.cancel()

    def close(self, seat: Seat) -> None:
        ThreadCall(functools.partial(close_quietly, seat.session))


class ThreadSeat(Seat):
    """A session whose messages are answered in threads.

    Attributes:
        call: Call that is running.
    """

    __slots__ = ("call",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.call: ThreadCall[SessionReply] | None = None


class ThreadHost(TimedHost):
    """Runs sessions in the threads for environments, for those that wait (see `set_env_threads`)."""

    def open(self) -> ThreadSeat:
        return ThreadSeat(self._new_session())

    async def answer(self, seat: ThreadSeat, payload: bytes) -> SessionReply:
        session = seat.session
        call = seat.call = ThreadCall(functools.partial(session.answer, payload))
        try:
            reply, error = await call.outcome(self._timeout)
        except Overdue:
            call.future.add_done_callback(lambda _: close_quietly(session))
            seat.session = self._new_session()
            return too_slow(self._timeout)
        finally:
            seat.call = None
        if reply is None:
            raise RuntimeError(f"Session.answer() failed: {error!r}")
        return reply

    def close(self, seat: ThreadSeat) -> None:
        session = seat.session
        if seat.call is not None:
            seat.call.future.add_done_callback(lambda _: close_quietly(session))
        else:
            ThreadCall(functools.partial(close_quietly, session))


def local_host(make: Callable[[], Env], env_id: str, env: Env, timeout: float | None) -> Host:
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


def close_quietly(session: Session) -> None:
    """Close a session; a failure of its environment is logged."""
    try:
        session.close()
    except Exception:
        logger.warning("closing an environment failed", exc_info=True)


def lost(text: str, code: str) -> SessionReply:
    """Return the answer for a session that lost its episode."""
    return SessionReply(
        wire.encode(wire.error_message(f"{text}; a reset starts a new episode", code)), code, False
    )


def too_slow(timeout: float | None) -> SessionReply:
    """Return the answer for a call that exceeded the time limit."""
    return lost(f"the environment did not answer within {timeout:g} s", wire.EXECUTION_ERROR)


def unexpected(error: BaseException) -> SessionReply:
    """Return the answer for a failure of the server itself."""
    return lost(f"the server failed: {error_line(error)}", wire.SESSION_ERROR)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
