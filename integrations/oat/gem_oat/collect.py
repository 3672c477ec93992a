"""Episodes, many at once, until they have the turns that an update needs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gem_core.rollout import Episode, nothing_trainable
from gem_core.tasks import TaskRow

Play: TypeAlias = Callable[[TaskRow, int], Awaitable[Episode]]
"""A task and the number of the sample within its group in, the episode out."""


async def collect(
    tasks: list[TaskRow], play: Play, *, turns: int, at_once: int, group_size: int = 1
) -> list[Episode]:
    """Play tasks in order until their trainable episodes have at least `turns` turns.

    An episode that ends makes room for the next one. Whatever was begun is played to its end and
    belongs to the result: leaving out what was still running would leave out the long episodes. A
    group is begun as a whole.

    Args:
        tasks: At least one; they start over when failures have used them up. Those that were begun are
            removed, so that the next call goes on with the rest.
        play: Plays one of them.
        turns: Wanted.
        at_once: Most episodes at the same time.
        group_size: Episodes per task.

    Returns:
        The episodes in the order of their tasks, those that are not trainable included.

    Raises:
        EnvError: As many episodes in a row failed as turns are wanted, so that nothing is left to train
            on; names the first of them.
    """
    numbers = itertools.count()
    running: dict[asyncio.Future[Episode], int] = {}
    ended: dict[int, Episode] = {}
    failed: list[Episode] = []  # since the last one that did not
    begun = collected = 0
    try:
        while True:
            while len(running) < at_once and (begun % group_size or collected + len(running) < turns):
                begun = next(numbers) + 1
                task = tasks[(begun - 1) // group_size % len(tasks)]
                running[asyncio.ensure_future(play(task, (begun - 1) % group_size))] = begun
            if not running:
                del tasks[: begun // group_size]
                return [ended[number] for number in sorted(ended)]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in sorted(done, key=running.__getitem__):
                episode = ended[running.pop(future)] = future.result()
                collected += len(episode.turns) if episode.trainable else 0
                failed = [] if episode.trainable else [*failed, episode]
            if len(failed) >= turns:
                raise nothing_trainable(failed, f"the last {len(failed)} episodes of this step")
    finally:
        for future in running:
            future.cancel()
        await asyncio.gather(*running, return_exceptions=True)
