"""Concurrent tasks with a limit on their number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

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
    except BaseException:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
