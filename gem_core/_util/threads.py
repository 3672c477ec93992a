"""Blocking calls for async callers, in daemon threads that calls which hang cannot use up.

    observation, info = await in_thread(env.reset, 0)

The threads are shared by the whole process. A call that nobody waits for any more (it took too long, or
its caller was cancelled) keeps its thread, and a new thread takes the place of that one. None of them keeps
the interpreter from exiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Outcome: TypeAlias = tuple[T, None] | tuple[None, Exception | SystemExit]

MAX_THREADS = 32
"""Blocking calls that run at the same moment; the others wait for a free thread."""


class Overdue(Exception):
    """A call has run for longer than it may."""


class ThreadCall(Generic[T]):
    """A call in a thread, started at once.

    Args:
        function: What to call, with the context variables of the caller.
        executor: None takes the threads of this module.

    Attributes:
        future: Done when the call has returned, also after nobody waits for it any more.
    """

    def __init__(self, function: Callable[[], T], executor: Executor | None = None) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self._began: float | None = None  # None while it waits for a thread
        self._executor = executor or _shared()
        self.future: Future[Outcome[T]] = self._executor.submit(self._run)

    async def outcome(self, timeout: float | None = None) -> Outcome[T]:
        """Result or exception as a value: a `StopIteration` cannot cross an asyncio future.

        A `SystemExit` is an exception like others here, because a thread cannot end the process.

        Args:
            timeout: Seconds that the call may take, from the moment that a thread takes it up.

        Raises:
            Overdue: It has taken longer, and goes on without anybody waiting.
        """
        waiting = asyncio.wrap_future(self.future)
        left = timeout
        try:
            if timeout is None:
                return await waiting
            while not (await asyncio.wait({waiting}, timeout=left))[0]:
                # A call that starts later than now is overdue later than this.
                left = timeout - (0.0 if self._began is None else time.monotonic() - self._began)
                if left <= 0:
                    raise Overdue
        except BaseException:
            waiting.cancel()
            if not self.future.cancel() and isinstance(self._executor, _DaemonThreads):
                self._executor.replace(self.future)
            raise
        return waiting.result()

    def _run(self) -> Outcome[T]:
        self._began = time.monotonic()
        try:
            return self._context.run(self._function), None
        except (Exception, SystemExit) as error:
            return None, error


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread`, in the threads of this module."""
    value, error = await ThreadCall(functools.partial(function, *args, **kwargs)).outcome()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # no error: it is the result


class _DaemonThreads(Executor):
    """Threads that are started when they are needed, `most` of them besides those that were replaced."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._busy: set[Future[Any]] = set()
        self._threads = 0
        self._idle = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        with self._changed:
            self._queue.append((future, functools.partial(fn, *args, **kwargs)))
            self._changed.notify()
            self._start_if_needed()
        return future

    def replace(self, future: Future[Any]) -> None:
        """Start another thread in the place of the one that `future` keeps busy, which ends with it."""
        with self._changed:
            if future in self._busy:
                self._busy.remove(future)
                self._threads -= 1
                self._start_if_needed()

    def _start_if_needed(self) -> None:
        if self._idle < len(self._queue) and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._work, name="gem-env", daemon=True).start()

    def _work(self) -> None:
        while self._take_one():
            pass

    def _take_one(self) -> bool:
        """Carry out the next call; whether this thread goes on."""
        with self._changed:
            self._idle += 1
            while not self._queue:
                self._changed.wait()
            self._idle -= 1
            future, function = self._queue.popleft()
            if not future.set_running_or_notify_cancel():
                return True
            self._busy.add(future)
        try:
            result = function()
        except BaseException as error:  # the caller that waits gets it, whatever it is
            future.set_exception(error)
        else:
            future.set_result(result)
        with self._changed:
            if future not in self._busy:
                return False
            self._busy.remove(future)
            return True


_by_process: dict[int, _DaemonThreads] = {}
"""By process id: what a fork has copied has no threads."""


def _shared() -> _DaemonThreads:
    return _by_process.setdefault(os.getpid(), _DaemonThreads(MAX_THREADS))
