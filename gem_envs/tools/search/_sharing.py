"""Calls in threads that several callers share."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

from gem_core._util.forks import ForkSafeLock, renew_after_fork
from gem_core._util.places import current_clock, stopping
from gem_core._util.threads import CallOutcome, ThreadCall

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedCalls(Generic[K, T]):
    """Calls in threads, of which those with equal keys are one as long as it runs.

    A call is given up when nobody waits for it anymore. The callers may be on any event loop or thread.

    Args:
        executor: Returns the executor of the next call.
    """

    def __init__(self, executor: Callable[[], Executor]) -> None:
        self._executor = executor
        self._lock = ForkSafeLock()
        self._running: dict[K, _Shared[T]] = {}
        renew_after_fork(self)

    async def outcome(self, key: K, function: Callable[[], T]) -> T:
        """Return the result of the call with this key; start it with `function` if none runs."""
        shared, mine = self._join(key, function)
        try:
            return _value(await asyncio.wrap_future(mine))
        finally:
            self._leave(key, shared)

    def result(self, key: K, function: Callable[[], T]) -> T:
        """Return what `outcome` returns, to a caller that is not a coroutine."""
        shared, mine = self._join(key, function)
        try:
            with stopping(mine.cancel):
                return _value(mine.result())
        finally:
            self._leave(key, shared)

    def forget_parent(self) -> None:
        self._running = {}

    def _join(self, key: K, function: Callable[[], T]) -> tuple[_Shared[T], Future[CallOutcome[T]]]:
        """Return the call, and a future of its outcome that only this caller cancels."""
        mine: Future[CallOutcome[T]] = Future()
        with self._lock:
            shared = self._running.get(key)
            if shared is None or shared.call.future.done():
                shared = self._running[key] = _Shared(ThreadCall(function, self._executor()))
            else:
                shared.call.clock.join(current_clock())
            shared.callers += 1
        shared.call.future.add_done_callback(functools.partial(_pass_on, mine))
        return shared, mine

    def _leave(self, key: K, shared: _Shared[T]) -> None:
        with self._lock:
            shared.callers -= 1
            if not shared.callers and self._running.get(key) is shared:
                del self._running[key]
        shared.call.clock.leave(current_clock())
        if not shared.callers:
            shared.call.give_up()


class _Shared(Generic[T]):
    def __init__(self, call: ThreadCall[T]) -> None:
        self.call = call
        self.callers = 0


def _pass_on(to: Future[CallOutcome[T]], done: Future[CallOutcome[T]]) -> None:
    if done.cancelled():
        to.cancel()
    elif to.set_running_or_notify_cancel():
        error = done.exception()
        if error is None:
            to.set_result(done.result())
        else:
            to.set_exception(error)


def _value(outcome: CallOutcome[T]) -> T:
    value, error = outcome
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # no error: it is the result
