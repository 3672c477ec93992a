"""Run blocking calls in daemon threads, so that calls that hang cannot exhaust a pool.

    observation, info = await in_thread(env.reset, 0)

A call is abandoned if it takes too long or its caller is canceled. It keeps its thread, and a new thread
replaces that one. No thread keeps the interpreter from exiting.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import functools
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from gem_core._util.checks import check_int
from gem_core._util.owners import note_call
from gem_core._util.waiting import Overdue

P = ParamSpec("P")
T = TypeVar("T")
CallOutcome: TypeAlias = tuple[T, None] | tuple[None, Exception | SystemExit]

MAX_THREADS = 32
"""Default number of calls of environments that run concurrently; further calls wait for a free thread."""
_IDLE_SECONDS = 30.0
"""Idle time in seconds after which a thread ends."""


def after_fork(reset: Callable[[], None]) -> None:
    """Call `reset` in every forked child, where locks may be held forever and no other thread runs."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=reset)


class PoolCall:
    """A call in a thread of a `ThreadPool`, which delivers its result itself and must not raise."""

    __slots__ = ("abandoned", "args", "function", "thread")

    def __init__(self, function: Callable[..., None], *args: Any) -> None:
        self.function, self.args = function, args
        self.thread: threading.Thread | None = None  # set while the call runs
        self.abandoned = False


class _PoolFuture(Future[T]):
    call: PoolCall


class ThreadPool(Executor):
    """A pool of daemon threads that start on demand.

    Args:
        size: Maximum number of threads, not counting those of abandoned calls.
        name: Name of the threads.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._reset()
        _pools.add(self)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: _PoolFuture[T] = _PoolFuture()
        future.call = PoolCall(_fulfill, future, functools.partial(fn, *args, **kwargs))
        self.start(future.call)
        return future

    def start(self, call: PoolCall) -> None:
        """Run a call without a future, which would take most of the time of a short call."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this thread pool is closed")
            self._unfinished += 1
            self._queue.put(call)
            self._start_if_needed()

    @property
    def size(self) -> int:
        """Maximum number of threads, not counting those of abandoned calls."""
        return self._size

    def resize(self, size: int) -> None:
        """Change the size. If it becomes smaller, threads that already run are kept until they are idle."""
        with self._lock:
            self._size = size
            for _ in range(self._unfinished - len(self._threads)):
                self._start_if_needed()

    def abandon(self, call: PoolCall | Future[Any]) -> None:
        """Replace the thread that runs this call; that thread ends when the call returns."""
        pool_call: PoolCall = call.call if isinstance(call, _PoolFuture) else call  # type: ignore[assignment]
        with self._lock:
            if pool_call.thread is not None and not pool_call.abandoned:
                pool_call.abandoned = True
                self._threads.remove(pool_call.thread)
                self._unfinished -= 1
                self._start_if_needed()

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False, timeout: float | None = None
    ) -> None:
        """End the threads once they have finished their calls.

        Args:
            wait: Whether to wait for the calls, except abandoned ones.
            cancel_futures: Whether to drop the calls that have not begun.
            timeout: Maximum number of seconds to wait; None means no limit.
        """
        with self._lock:
            self._closed = True
            dropped = self._drain() if cancel_futures else []
            self._queue.put(None)
            threads = list(self._threads)
        for call in dropped:
            if call.function is _fulfill:
                call.args[0].cancel()
        end = None if timeout is None else time.monotonic() + timeout
        for thread in threads if wait else ():
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _reset(self) -> None:
        """Initialize the pool; in a forked child, all earlier calls and threads belong to the parent."""
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[PoolCall | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._unfinished = 0  # calls that wait or run, except abandoned ones
        self._closed = False

    def _start_if_needed(self) -> None:
        if len(self._threads) < min(self._unfinished, self._size):
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._threads.add(thread)
            thread.start()

    def _drain(self) -> list[PoolCall]:
        """Return the calls that have not begun; they will not begin."""
        calls = []
        with contextlib.suppress(queue.Empty):
            while (call := self._queue.get_nowait()) is not None:
                calls.append(call)
        self._unfinished -= len(calls)
        return calls

    def _work(self) -> None:
        thread = threading.current_thread()
        with self._lock:  # held until the caller that started this thread has left
            pass
        while True:
            try:
                call = self._queue.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._queue.empty():
                        self._threads.discard(thread)
                        return
                continue
            if call is None:  # closed; the other threads end as well
                self._queue.put(None)
                return
            call.thread = thread
            call.function(*call.args)
            with self._lock:
                if call.abandoned:
                    return
                call.thread = None
                self._unfinished -= 1
            del call  # so that an idle thread keeps no object alive


def _fulfill(future: Future[T], function: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = function()
        except BaseException as error:  # any error is passed to the waiting caller
            future.set_exception(error)
        else:
            future.set_result(result)


_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


def _reset_pools() -> None:
    for pool in list(_pools):
        pool._reset()


after_fork(_reset_pools)

ENV_THREADS = ThreadPool(MAX_THREADS, "gem-env")
"""Threads for all calls of environments in this process."""
TOOL_THREADS = ThreadPool(MAX_THREADS, "gem-tool")
"""Threads for the calls of tools. They are separate because a thread of `ENV_THREADS` may wait for a tool."""


def set_env_threads(count: int) -> None:
    """Set how many calls of environments, and how many calls of tools, run at the same time in this process.

    Args:
        count: Number of threads for each kind of calls. The default, 32, suits environments that use a core;
            environments that mostly wait, for example for a server, can use as many as there are concurrent
            episodes. A thread that waits costs about 16 KB of memory on Linux.

    Raises:
        ConfigError: The number is not a whole number of at least 1.
    """
    check_int("env_threads", count, 1)
    for pool in (ENV_THREADS, TOOL_THREADS):
        pool.resize(count)


atexit.register(TOOL_THREADS.shutdown, timeout=5.0)  # sessions that are closing still end their programs


class ThreadCall(Generic[T]):
    """A call in a thread, started at once.

    Args:
        function: The function, called with the context variables of the caller.
        executor: Executor of the call; None means `ENV_THREADS`.

    Attributes:
        future: Future that is done when the call has returned, even if it was abandoned.
    """

    def __init__(self, function: Callable[[], T], executor: Executor | None = None) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self._began: float | None = None  # None while it waits for a thread
        self._executor = executor or ENV_THREADS
        self.future: Future[CallOutcome[T]] = self._executor.submit(self._run)
        note_call(self.future)

    async def outcome(self, timeout: float | None = None) -> CallOutcome[T]:
        """Wait for the call and return its result or its exception, as values.

        The exception is a value because a `StopIteration` cannot be raised through an asyncio future. A
        `SystemExit` is treated like other exceptions, because a thread cannot end the process.

        Args:
            timeout: Maximum number of seconds, from the moment that a thread starts the call; None means no
                limit.

        Raises:
            Overdue: The call exceeded the time limit and was abandoned.
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
            if not self.future.cancel() and isinstance(self._executor, ThreadPool):
                self._executor.abandon(self.future)
            raise
        return waiting.result()

    def _run(self) -> CallOutcome[T]:
        self._began = time.monotonic()
        try:
            return self._context.run(self._function), None
        except (Exception, SystemExit) as error:
            return None, error


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function of an environment in one of `ENV_THREADS`."""
    return await call_in(ENV_THREADS, functools.partial(function, *args, **kwargs))


async def call_in(executor: Executor, function: Callable[[], T]) -> T:
    """Call a blocking function in a thread of `executor`; abandon it if the caller is canceled."""
    value, error = await ThreadCall(function, executor).outcome()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # no error: it is the result
