"""Many episodes at once: a pool of environments played by one batching policy."""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Coroutine, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

import gem_core
from gem_core.core import Env
from gem_core.rollout import Context, Episode, Policy, run_episode
from gem_core.train.config import EVAL_SEEDS, TRAIN_SEEDS, TrainConfig

T = TypeVar("T")


class Task(NamedTuple):
    """One episode to be played."""

    env_id: str
    seed: int
    group: int
    """Episodes of a group share environment and seed."""


def training_tasks(config: TrainConfig, step: int) -> list[Task]:
    """Episodes of a training step, a function of the run's seed and the step alone.

    Nothing of it has to be saved, so a resumed run goes on with the same data.
    """
    random = Random(f"{config.seed}/tasks/{step}")
    ids, bounds = list(config.env), list(itertools.accumulate(config.env.values()))
    tasks = []
    for group in range(config.episodes_per_step // config.group_size):
        env_id = ids[bisect.bisect(bounds, random.random() * bounds[-1], hi=len(ids) - 1)]
        seed = random.randrange(TRAIN_SEEDS.start, TRAIN_SEEDS.stop)
        tasks += [Task(env_id, seed, group)] * config.group_size
    return tasks


def evaluation_tasks(env_id: str, episodes: int) -> list[Task]:
    """The first `episodes` held-out seeds."""
    return [Task(env_id, seed, group) for group, seed in enumerate(EVAL_SEEDS[:episodes])]


class Rollouts:
    """Plays tasks concurrently; keeps its environments and one event loop for the whole run.

    Args:
        config: Environments, their arguments and the limits of an episode.
        context: Makes token ids of observations.
        max_total_tokens: Most tokens of an episode; None for no limit.
    """

    def __init__(self, config: TrainConfig, context: Context, max_total_tokens: int | None) -> None:
        self.config = config
        self.context = context
        self.max_total_tokens = max_total_tokens
        self._idle: dict[str, list[Env]] = {id: [self._make(id)] for id in config.env}
        self._loop = asyncio.new_event_loop()

    def play(self, tasks: Sequence[Task], policy: Policy, *, name: str) -> list[Episode]:
        """Play all tasks, in any order of turns; the episodes come in the order of the tasks.

        Args:
            tasks: What to play.
            policy: Samples the responses.
            name: Tells the episodes of one call from those of another: request ids are made of it,
                and with them the random numbers of sampling.
        """

        async def all_tasks() -> list[Episode]:
            return await asyncio.gather(
                *(
                    self._play(task, policy, f"{name}/{number}", {"name": name, "group": task.group})
                    for number, task in enumerate(tasks)
                )
            )

        return self._run(all_tasks())

    async def _play(
        self, task: Task, policy: Policy, request_id: str, metadata: Mapping[str, Any]
    ) -> Episode:
        idle = self._idle[task.env_id]
        env = idle.pop() if idle else self._make(task.env_id)
        episode = await run_episode(
            env,
            policy,
            self.context,
            seed=task.seed,
            max_turns=self.config.max_turns,
            max_tokens_per_turn=self.config.max_tokens_per_turn,
            max_total_tokens=self.max_total_tokens,
            on_length_cut=self.config.on_length_cut,
            request_id=request_id,
            metadata=metadata,
        )
        if episode.error is None:
            idle.append(env)
        else:
            env.close()  # nobody knows what state it is in
        return episode

    def _make(self, id: str) -> Env:
        return gem_core.make(id, wrappers=self.config.wrappers or (), **self.config.env_kwargs)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Close the environments and the event loop."""
        for envs in self._idle.values():
            while envs:
                envs.pop().close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
