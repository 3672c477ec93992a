"""Many episodes at once: what `gem-core eval`, the trainer's evaluations and its rollouts share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gem_core.tasks import EnvChoice, TaskRow, make_tasks

Task = TypeVar("Task")
Result = TypeVar("Result")


def evaluation_tasks(source: EnvChoice, episodes: int) -> list[TaskRow]:
    """Return up to `episodes` evaluation tasks, always the same: the first seeds, or different items."""
    return list(make_tasks([source], episodes, split="eval"))


async def play_tasks(
    tasks: Sequence[Task], play: Callable[[int, Task], Awaitable[Result]], *, at_once: int
) -> list[Result]:
    """Play all tasks, `at_once` of them at the same time.

    Args:
        tasks: What to play; started in this order.
        play: Plays the task with this number.
        at_once: Most episodes that run at the same moment.

    Returns:
        What `play` returned, in the order of the tasks.

    Raises:
        Exception: The first error of `play`; the other episodes have been cancelled by then.
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
