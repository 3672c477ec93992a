"""One background event loop, for sync callers of async tools and for connections that outlive a loop.

    result = loop.run(tool.call(arguments, state))          # from a thread without a running loop
    answer = await loop.on_background(session.ask("..."))   # from any loop: the session stays on its own

A connection belongs to the event loop that created it. Episodes run on the trainer's event loop, so a tool
that keeps connections open keeps them on this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from gem_core._util.forks import ForkSafeLock, after_fork
from gem_core._util.places import stopping

T = TypeVar("T")

_lock = ForkSafeLock()


class _Background:
    """Holder of the loop: `gem-core check` takes a replaced attribute of a module for the work of a text."""

    loop: asyncio.AbstractEventLoop | None = None


_background = _Background()


def background() -> asyncio.AbstractEventLoop:
    """Return the loop of this process; the first call starts it in its own thread."""
    with _lock:
        if _background.loop is None:
            _background.loop = asyncio.new_event_loop()
            threading.Thread(target=_background.loop.run_forever, name="gem-tools", daemon=True).start()
        return _background.loop


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start `work` on the background loop. May be called from any thread."""
    return asyncio.run_coroutine_threadsafe(work, background())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the background loop and return its result; for callers that are not coroutines.

    Raises:
        RuntimeError: Called on the background loop itself, which would deadlock.
        GivenUp: The call of the caller was given up, and `work` was canceled.
    """
    if threading.current_thread().name == "gem-tools":
        work.close()
        raise RuntimeError("loop.run() was called from a coroutine on the background loop; await it instead")
    future = submit(work)
    try:
        with stopping(future.cancel):
            return future.result()
    except BaseException:  # KeyboardInterrupt: cancel the call
        future.cancel()
        raise


async def on_background(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` on the background loop.

    Raises:
        asyncio.CancelledError: The caller was canceled. This cancels `work`, and is raised when it has ended.
    """
    home, away = asyncio.get_running_loop(), background()
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


def _forget() -> None:
    """Forget the loop in a forked child, because its thread belongs to the parent."""
    _background.loop = None


after_fork(_forget)
