"""`within`: wait with a time limit, and never lose a cancel. `cancel_all`: leave no task running.

`asyncio.wait_for` of Python 3.10 and 3.11 drops a cancel that arrives in the same turn of the event loop in
which the awaited object completes: the caller goes on as if nobody had canceled it. Where a cancel matters,
gem-core waits with `within`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from gem_core._util.places import Clock, current_clock, on_clock

T = TypeVar("T")


class Overdue(Exception):
    """Raised when a call exceeds its time limit. It differs from a `TimeoutError` that the call raises."""


async def within(
    seconds: float | None, awaited: Awaitable[T], *, unused: Callable[[T], object] | None = None
) -> T:
    """Await an object for a limited time.

    The object is never left running: when the limit has passed, or when the caller is canceled, it is
    canceled, and this function returns after it has ended.

    Args:
        seconds: Maximum number of seconds; None means no limit. Time in which a coroutine waits for a place
            or a thread does not count (see `gem_core._util.places`).
        awaited: A coroutine, task, or future.
        unused: Called with a result that nobody receives, because the caller was canceled when it had already
            been computed; for a result that must be given back, such as a place or a connection. None drops
            it.

    Returns:
        The result, also if it was ready only after the limit had passed.

    Raises:
        Overdue: The limit passed.
        asyncio.CancelledError: The caller was canceled, even if `awaited` completed in the same moment.
    """
    clock = Clock(current_clock())
    with on_clock(clock):
        task = asyncio.ensure_future(awaited)
    try:
        if seconds is None:
            await asyncio.wait({task})
        else:
            while not (await asyncio.wait({task}, timeout=clock.left(seconds)))[0]:
                if clock.seconds >= seconds:
                    break
        overdue = not task.done()
        if overdue:
            await cancel_all([task])
    except asyncio.CancelledError:
        try:
            await cancel_all([task])
        finally:
            if not task.cancelled() and task.exception() is None and unused is not None:
                unused(task.result())
        raise
    finally:
        clock.end()
    if overdue and task.cancelled():
        raise Overdue
    return task.result()


async def cancel_all(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until all of them have ended; their results and errors are dropped.

    Raises:
        asyncio.CancelledError: The caller was canceled meanwhile. The cancel is passed on to the tasks, and
            raised after they have ended.
    """
    canceled: asyncio.CancelledError | None = None
    while unfinished := [task for task in tasks if not task.done()]:
        for task in unfinished:
            task.cancel()
        try:
            await asyncio.wait(unfinished)
        except asyncio.CancelledError as error:
            canceled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # mark as retrieved
    if canceled is not None:
        raise canceled
