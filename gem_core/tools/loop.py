"""One event loop in a thread of its own, for sync callers of async tools and for what outlives a loop.

    result = loop.run(tool.call(arguments, state))          # from a thread without a running loop
    answer = await loop.on_background(session.ask("..."))   # from any loop: the session stays on its own

A connection belongs to the event loop that it was made on. Episodes are played on whatever loop the trainer
has, so a tool that keeps connections keeps them here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from gem_core._util.threads import after_fork

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def background() -> asyncio.AbstractEventLoop:
    """The loop of this process; started with its thread when it is first needed."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="gem-tools", daemon=True).start()
        return _loop


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start `work` on the background loop; from any thread."""
    return asyncio.run_coroutine_threadsafe(work, background())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Result of `work`, which runs on the background loop; for callers that are no coroutines.

    Raises:
        RuntimeError: Called on the background loop itself, which would wait for itself.
    """
    if threading.current_thread().name == "gem-tools":
        work.close()
        raise RuntimeError("loop.run() was called from a coroutine on the background loop; await it instead")
    future = submit(work)
    try:
        return future.result()
    except BaseException:  # KeyboardInterrupt: the call is not to go on
        future.cancel()
        raise


async def on_background(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` on the background loop; cancelling this cancels it."""
    return await asyncio.wrap_future(submit(work))


def _forget() -> None:
    """In a forked child: the thread is the parent's."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


after_fork(_forget)
