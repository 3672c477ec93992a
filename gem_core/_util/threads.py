"""Run blocking calls in daemon threads, so that calls that hang cannot exhaust a pool.

    observation, info = await in_thread(env.reset, 0)

A call is given up if it takes too long or its caller is canceled. If it has not begun, it never runs. If it
has, it keeps its thread, and a new thread replaces that one; where it waits for a place, a program, or a
server, it ends (see `gem_core._util.places`). No thread keeps the interpreter from exiting.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import functools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from gem_core._util.checks import check_int
from gem_core._util.forks import renew_after_fork
from gem_core._util.owners import note_call
from gem_core._util.places import Clock, GivenUp, current_clock, on_clock
from gem_core._util.waiting import Overdue

P = ParamSpec("P")
T = TypeVar("T")
CallOutcome: TypeAlias = tuple[T, None] | tuple[None, Exception | SystemExit]

MAX_THREADS = 32
"""Default number of calls of environments that run concurrently; further calls wait for a free thread."""
_IDLE_SECONDS = 30.0
"""Idle time in seconds after which a thread ends."""


class PoolCall:
    """A call in a thread of a `ThreadPool`, which delivers its result itself and must not raise."""

    __slots__ = ("abandoned", "args", "function", "thread")

    def __init__(self, function: Callable[..., None], *args: Any) -> None:
        self.function, self.args = function, args
        self.thread: threading.Thread | None = None  # set while the call runs
        self.abandoned = False


class _PoolFuture(Future[T]):
    call: PoolCall
    pool: ThreadPool

    def cancel(self) -> bool:
        canceled = super().cancel()
        if canceled:
            self.pool.abandon(self.call)
        return canceled


class ThreadPool(Executor):
    """A pool of daemon threads that start on demand.

    Args:
        size: Maximum number of threads, not counting those of abandoned calls.
        name: Name of the threads.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self.forget_parent()
        renew_after_fork(self)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: _PoolFuture[T] = _PoolFuture()
        future.pool = self
        future.call = PoolCall(_fulfill, future, functools.partial(fn, *args, **kwargs))
        self.start(future.call)
        return future

    def start(self, call: PoolCall) -> None:
        """Run a call without a future, which would take most of the time of a short call.

        Raises:
            RuntimeError: The pool is closed, or no thread can be started for the call, which does not run.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("this thread pool is closed")
            self._waiting[call] = None
            try:
                self._start_if_needed()
            except BaseException:
                del self._waiting[call]
                raise
            self._tokens.put(True)

    @property
    def size(self) -> int:
        """Maximum number of threads, not counting those of abandoned calls."""
        return self._size

    def resize(self, size: int) -> None:
        """Change the size. If it becomes smaller, threads that already run are kept until they are idle."""
        with self._lock:
            self._size = size
        self._fill()

    def abandon(self, call: PoolCall | Future[Any]) -> None:
        """Give up a call.

        One that has not begun does not run. A thread that runs one is replaced, and ends when it returns.
        """
        pool_call: PoolCall = call.call if isinstance(call, _PoolFuture) else call  # type: ignore[assignment]
        with self._lock:
            self._waiting.pop(pool_call, None)
            if pool_call.thread is None or pool_call.abandoned:
                return
            pool_call.abandoned = True
            self._threads.remove(pool_call.thread)
            self._running -= 1
        self._fill()

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
            dropped = self._drop() if cancel_futures else []
            self._tokens.put(None)
            threads = list(self._threads)
        for future in dropped:
            future.cancel()
        end = None if timeout is None else time.monotonic() + timeout
        for thread in threads if wait else ():
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def forget_parent(self) -> None:
        """Initialize the pool; in a forked child, all earlier calls and threads belong to the parent."""
        self._lock = threading.Lock()
        self._waiting: dict[PoolCall, None] = {}  # in the order of their starts
        self._running = 0  # calls that run, except abandoned ones
        self._threads: set[threading.Thread] = set()
        # True wakes a thread for a call that began to wait, which may have left since; None ends the threads.
        self._tokens: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._closed = False

    def _start_if_needed(self) -> bool:
        """Start a thread if a call needs one; return whether it did."""
        if len(self._threads) >= min(len(self._waiting) + self._running, self._size):
            return False
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        thread.start()  # waits for the lock before it works
        self._threads.add(thread)
        return True

    def _fill(self) -> None:
        """Start threads for the calls that wait; if none can be started and none runs, the calls fail."""
        with self._lock:
            try:
                while self._start_if_needed():
                    pass
                return
            except RuntimeError as error:
                failure = error
                failed = [] if self._threads else self._drop()
        for future in failed:
            if future.set_running_or_notify_cancel():
                future.set_exception(failure)

    def _drop(self) -> list[Future[Any]]:
        """Let the calls not run that have not begun; return their futures, which are still pending."""
        calls = list(self._waiting)
        self._waiting.clear()
        return [call.args[0] for call in calls if call.function is _fulfill]

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            try:
                token = self._tokens.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if not self._waiting:
                        self._threads.discard(thread)
                        return
                continue
            with self._lock:
                call = next(iter(self._waiting), None)
                if call is not None:
                    del self._waiting[call]
                    call.thread = thread
                    self._running += 1
                elif token is None:  # closed; the other threads end as well
                    self._tokens.put(None)
                    return
                else:
                    continue
            call.function(*call.args)
            with self._lock:
                if call.abandoned:
                    if len(self._threads) >= min(len(self._waiting) + self._running, self._size):
                        return
                    self._threads.add(thread)  # no thread could be started in its place
                else:
                    call.thread = None
                    self._running -= 1
            del call  # so that an idle thread keeps no object alive


def _fulfill(future: Future[T], function: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = function()
        except BaseException as error:  # any error is passed to the waiting caller
            future.set_exception(error)
        else:
            future.set_result(result)


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
        clock: Clock of the call, which stands until a thread starts it, and while it waits for a place.

    Raises:
        RuntimeError: No thread can be started for the call.
    """

    def __init__(self, function: Callable[[], T], executor: Executor | None = None) -> None:
        self._function = function
        self._executor = executor or ENV_THREADS
        self.clock = Clock(current_clock())
        self.clock.stand()
        self._context = contextvars.copy_context()
        try:
            self.future: Future[CallOutcome[T]] = self._executor.submit(self._run)
        except BaseException:
            self.clock.end()
            raise
        note_call(self.future)

    async def outcome(self, timeout: float | None = None) -> CallOutcome[T]:
        """Wait for the call and return its result or its exception, as values.

        The exception is a value because a `StopIteration` cannot be raised through an asyncio future. A
        `SystemExit` is treated like other exceptions, because a thread cannot end the process.

        Args:
            timeout: Maximum number of seconds on the clock of the call; None means no limit.

        Raises:
            Overdue: The call exceeded the time limit and was given up.
        """
        waiting = asyncio.wrap_future(self.future)
        try:
            if timeout is None:
                return await waiting
            while not (await asyncio.wait({waiting}, timeout=self.clock.left(timeout)))[0]:
                if self.clock.seconds >= timeout:
                    raise Overdue
            return waiting.result()
        except BaseException:
            waiting.cancel()
            self.give_up()
            raise

    def give_up(self) -> None:
        """Let the call not begin, or else let its thread know that nobody waits for the result."""
        if not self.future.cancel() and isinstance(self._executor, ThreadPool):
            self._executor.abandon(self.future)
        self.clock.give_up()
        self.clock.end()  # its callers do not wait for a place with it

    def _run(self) -> CallOutcome[T]:
        self.clock.go()
        try:
            return self._context.run(self._on_clock), None
        except (Exception, SystemExit) as error:
            return None, error
        finally:
            self.clock.end()

    def _on_clock(self) -> T:
        if self.clock.given_up:
            raise GivenUp
        with on_clock(self.clock):
            return self._function()


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function of an environment in one of `ENV_THREADS`."""
    return await call_in(ENV_THREADS, functools.partial(function, *args, **kwargs))


async def call_in(executor: Executor, function: Callable[[], T]) -> T:
    """Call a blocking function in a thread of `executor`; abandon it if the caller is canceled."""
    value, error = await ThreadCall(function, executor).outcome()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # no error: it is the result
