"""Cancel a task at a chosen moment: at its k-th await, after n turns of the event loop, or after a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

Work = Callable[[], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Moment:
    """When to cancel.

    Attributes:
        kind: "suspended" (at await `at`, while the task waits), "completing" (at await `at`, in the turn of
            the event loop in which what the task awaits completes, before the task goes on), "turn" (`at`
            turns after the start), or "seconds" (`at` seconds after the start).
        at: See `kind`.
    """

    kind: str
    at: float


@dataclass
class Ending:
    """How a task ended.

    Attributes:
        reached: Whether the moment came before the end of the task.
        canceled: Whether the task raised `CancelledError`.
        error: The other exception that it raised; None if there is none.
    """

    reached: bool = False
    canceled: bool = False
    error: BaseException | None = None


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that reports each of its awaits."""

    def __init__(self, inner: Coroutine[Any, Any, Any], awaits: Callable[[int, Any], None]) -> None:
        self._inner, self._awaits, self._number = inner, awaits, 0

    def send(self, value: Any) -> Any:
        return self._seen(self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        return self._seen(self._inner.throw(*error))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()

    def _seen(self, awaited: Any) -> Any:
        self._number += 1
        self._awaits(self._number, awaited)
        return awaited


async def cancel_at(work: Work, moment: Moment, limit: float = 30.0) -> Ending:
    """Run `work` in a task, cancel it at `moment`, and return how it ended.

    Raises:
        AssertionError: The task has not ended `limit` seconds after its cancel.
    """
    ending = Ending()
    loop = asyncio.get_running_loop()

    def cancel(*_: object) -> None:
        ending.reached = task.cancel() or ending.reached

    def awaits(number: int, awaited: Any) -> None:
        if number != moment.at or moment.kind not in ("suspended", "completing"):
            return
        if awaited is None or moment.kind == "suspended":
            loop.call_soon(cancel)
        else:
            awaited.add_done_callback(cancel)  # called before the one that wakes the task

    task = asyncio.ensure_future(_Counted(work(), awaits))
    if moment.kind == "turn":
        for _ in range(int(moment.at)):
            await asyncio.sleep(0)
        cancel()
    elif moment.kind == "seconds":
        await asyncio.wait({task}, timeout=moment.at)
        cancel()
    await asyncio.wait({task}, timeout=limit)
    assert task.done(), f"the task has not ended {limit:g} s after {moment}"
    ending.canceled = task.cancelled()
    if not ending.canceled:
        ending.error = task.exception()
    return ending
