"""Playing episodes concurrently until they have the turns that an update needs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gem_chat._failures import nothing_trainable
from gem_core._util.waiting import cancel_all
from gem_core.rollout import Episode
from gem_core.tasks import TaskRow

Play: TypeAlias = Callable[[TaskRow, int], Awaitable[Episode]]
"""Plays the episode of a task; takes the task and the index of the sample within its group."""


async def collect(
    tasks: list[TaskRow], play: Play, *, turns: int, at_once: int, group_size: int = 1
) -> list[Episode]:
    """Play tasks in order until their trainable episodes have at least `turns` turns.

    When an episode ends, the next one starts. Every episode that was started is completed and returned,
    because dropping unfinished episodes would drop the long ones. All episodes of a group are started.

    Args:
        tasks: Tasks to play, at least one. They are repeated if failed episodes use them up. Started tasks
            are removed, so the next call continues with the rest.
        play: Plays one episode of a task.
        turns: Number of turns to collect.
        at_once: Maximum number of concurrent episodes.
        group_size: Number of episodes per task.

    Returns:
        The episodes in the order of their tasks, including those that are not trainable.

    Raises:
        EnvError: `turns` episodes in a row failed; the message describes the first of them.
    """
    numbers = itertools.count()
    running: dict[asyncio.Future[Episode], int] = {}
    ended: dict[int, Episode] = {}
    failed: list[Episode] = []  # since the last episode that did not fail
    started = collected = 0
    try:
        while True:
            while len(running) < at_once and (started % group_size or collected + len(running) < turns):
                started = next(numbers) + 1
                task = tasks[(started - 1) // group_size % len(tasks)]
                running[asyncio.ensure_future(play(task, (started - 1) % group_size))] = started
            if not running:
                del tasks[: started // group_size]
                return [ended[number] for number in sorted(ended)]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in sorted(done, key=running.__getitem__):
                episode = ended[running.pop(future)] = future.result()
                collected += len(episode.turns) if episode.trainable else 0
                failed = [] if episode.trainable else [*failed, episode]
            if len(failed) >= turns:
                raise nothing_trainable(failed, f"the last {len(failed)} episodes of this step")
    except (Exception, asyncio.CancelledError):
        await cancel_all(running)
        raise
