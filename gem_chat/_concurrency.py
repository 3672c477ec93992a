"""Concurrent tasks with a limit on their number, and an event loop that outlives a call (`EpisodeLoop`)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from gem_core._util.waiting import cancel_all

Task = TypeVar("Task")
Result = TypeVar("Result")


async def play_tasks(
    tasks: Sequence[Task], play: Callable[[int, Task], Awaitable[Result]], *, at_once: int
) -> list[Result]:
    """Play all tasks, up to `at_once` of them concurrently.

    Args:
        tasks: The tasks, in the order in which they start.
        play: Function that is called with the index of a task and the task.
        at_once: Maximum number of tasks that run concurrently.

    Returns:
        The results of `play`, in the order of the tasks.

    Raises:
        Exception: The first error of `play`; all other tasks are canceled first.
    """
    room = asyncio.Semaphore(at_once)

    async def one(number: int, task: Task) -> Result:
        async with room:
            return await play(number, task)

    running = [asyncio.ensure_future(one(number, task)) for number, task in enumerate(tasks)]
    try:
        return await asyncio.gather(*running)
    except (Exception, asyncio.CancelledError):
        await cancel_all(running)
        raise


class EpisodeLoop:
    """An event loop that is kept between calls, because environments and connections belong to one loop.

        loop = EpisodeLoop()
        episodes = loop.run(play_tasks(tasks, play, at_once=64))

    A call that is interrupted, or that raises, leaves nothing behind: every task of the loop is canceled, and
    has ended and closed its environment before the next call begins.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine and return its result; if a loop is running in this thread, in another thread.

        Raises:
            KeyboardInterrupt: The call was interrupted. The first interrupt cancels all tasks and waits until
                their environments are closed; the next one does not wait for these.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run(work)
        result: Future[Result] = Future()  # in a notebook, a loop is running in this thread
        interrupt: BaseException | None = None

        def play() -> None:
            try:
                result.set_result(self._run(work))
            except BaseException as error:
                result.set_exception(error)

        def cancel() -> None:
            if not result.done():  # otherwise this would cancel the next call
                self._cancel()

        thread = threading.Thread(target=play, name="gem-episodes", daemon=True)
        begin: Callable[[], object] = thread.start
        while True:
            try:
                begin()
                wait([result])
                break
            except RuntimeError:  # no thread can be started
                work.close()
                raise
            except BaseException as error:  # the other thread does not get a KeyboardInterrupt
                begin = bool  # the thread runs: `start` waits for its first step
                self._loop.call_soon_threadsafe(cancel)
                interrupt = error
        thread.join()
        if interrupt is not None:
            raise interrupt
        return result.result()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._loop.run_until_complete(work)
        except BaseException:
            self._end_tasks()
            raise

    def close(self) -> None:
        """Cancel all tasks, and close the loop. May be called more than once."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._close()
        else:  # in a notebook
            thread = threading.Thread(target=self._close, name="gem-episodes", daemon=True)
            thread.start()
            thread.join()

    def _close(self) -> None:
        if not self._loop.is_closed():
            self._end_tasks()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _end_tasks(self) -> None:
        """Cancel the tasks of the loop, which is not running, and wait until they have ended."""
        ended: set[asyncio.Task[Any]] = set()
        while tasks := asyncio.all_tasks(self._loop):
            ended |= tasks
            self._cancel()
            # A task that was interrupted raises KeyboardInterrupt again in the call that awaits it.
            with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
                self._loop.run_until_complete(cancel_all(tasks))
        for task in ended:
            if not task.cancelled():
                task.exception()  # mark as retrieved
