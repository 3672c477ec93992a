"""`BackgroundLoop`: an event loop in a thread of its own, one per process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from gem_core._util.forks import ForkSafeLock, renew_after_fork
from gem_core._util.places import stopping

T = TypeVar("T")


class BackgroundLoop:
    """An event loop that runs in its own thread from its first use on. A forked child starts another one.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = ForkSafeLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        renew_after_fork(self)

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop of this process; the first call starts it."""
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                try:
                    threading.Thread(target=loop.run_forever, name=self._name, daemon=True).start()
                except RuntimeError:  # no further thread may start now; a later call tries again
                    loop.close()
                    raise
                self._loop = loop
            return self._loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` on the loop. May be called from any thread."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self.get())
        except BaseException:  # the loop cannot be started
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and return its result; for callers that are not coroutines.

        Raises:
            RuntimeError: Called on the loop itself, which would deadlock.
            GivenUp: The call of the caller was given up, and `work` was canceled.
        """
        if threading.current_thread().name == self._name:
            work.close()
            raise RuntimeError(
                "loop.run() was called from a coroutine on the background loop; await it instead"
            )
        future = self.submit(work)
        try:
            with stopping(future.cancel):
                return future.result()
        except BaseException:  # KeyboardInterrupt: cancel the call
            future.cancel()
            raise

    async def on(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` on the loop, from another one.

        Raises:
            asyncio.CancelledError: The caller was canceled. This cancels `work`, and is raised when it has
                ended.
        """
        try:
            away = self.get()
        except BaseException:  # the loop cannot be started
            work.close()
            raise
        return await on_loop(away, work)

    def forget_parent(self) -> None:
        """Forget the loop in a forked child, because its thread belongs to the parent."""
        self._loop = None


async def on_loop(away: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` on another loop, which runs in another thread; a cancel ends it there first."""
    home = asyncio.get_running_loop()
    ended: asyncio.Future[None] = home.create_future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        tasks.append(away.create_task(work))
        tasks[0].add_done_callback(tell)

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop of the caller is closed
            home.call_soon_threadsafe(ended.set_result, None)

    def cancel() -> None:
        tasks[0].cancel()

    away.call_soon_threadsafe(start)
    canceled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError as error:
            canceled = error
            away.call_soon_threadsafe(cancel)
        except BaseException:  # the loop of the caller is stopping
            away.call_soon_threadsafe(cancel)
            raise
    if canceled is not None:
        raise canceled
    return tasks[0].result()
