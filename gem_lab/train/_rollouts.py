"""Concurrent episodes: a pool of environments played by batching policies."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gem_chat._concurrency import EpisodeLoop, play_tasks
from gem_core._util.messages import unknown
from gem_core.errors import ConfigError
from gem_core.rollout import Context, EnvPool, Episode, Policy
from gem_core.tasks import EnvChoice, TaskRow, make_tasks
from gem_lab.train._config import TrainConfig


def training_tasks(config: TrainConfig, step: int) -> list[TaskRow]:
    """Return the tasks of a training step, which depend only on the options of the run and the step.

    No state has to be saved: a resumed run continues where the interrupted one stopped, even in the middle of
    a pass over a dataset.

    Args:
        config: Options of the run.
        step: Index of the step, from 1.
    """
    tasks = config.episodes_per_step // config.group_size
    return list(
        make_tasks(
            config.sources, tasks, seed=config.seed, group_size=config.group_size, start=(step - 1) * tasks
        )
    )


Players: TypeAlias = Mapping[str, tuple[Policy, Context]]
"""Policy and context by agent; the entry "" plays all other agents and single-agent environments."""


def require_environments(config: TrainConfig) -> None:
    """Build and close every environment once, so that mistakes are reported before a model is created.

    Raises:
        ConfigError: An environment cannot be built, has no reward components for an estimator that needs
            them, or no environment has an agent that `agent_model` names.
        GemError: An environment cannot be made; see `EnvChoice.make`.
    """
    if "reward_components" in config.choice.needs:
        for source in config.sources:
            with source.make(config.wrappers or ()) as env:
                if not env.reward_components:
                    raise ConfigError(
                        f"estimator={config.estimator!r} needs reward_components, which {source.label} does "
                        "not declare (Env.reward_components)"
                    )
    agents: set[str] = set()
    with contextlib.closing(EnvPool(config.wrappers or ())) as envs:
        for source in _every_source(config):
            agents.update(envs.prepare(source))
    for agent in config.agent_models:
        if agent not in agents:
            message = unknown("agent", agent, sorted(agents), owner=", ".join(config.env))
            raise ConfigError(f"agent_model: {message}")


class Rollouts:
    """Plays tasks concurrently, with one pool of environments and one event loop for the whole run.

    Args:
        config: Environments, their arguments, and the limits of an episode.
        players: Players of the run; the constructor checks that they can play the environments.
        max_total_tokens: Maximum number of tokens of an episode; None for no limit.

    Raises:
        ConfigError: An environment cannot be built, or its observations cannot be shown to the players.
    """

    def __init__(self, config: TrainConfig, players: Players, max_total_tokens: int | None) -> None:
        self.config = config
        self.max_total_tokens = max_total_tokens
        self._envs = EnvPool(config.wrappers or ())
        for source in _every_source(config):
            self._envs.prepare(source, [context for _, context in players.values()])
        self._loop = EpisodeLoop()

    def play(self, tasks: Sequence[TaskRow], players: Players, *, name: str) -> list[Episode]:
        """Play all tasks concurrently and return the episodes in the order of the tasks.

        A task with several agents yields one episode per agent that had a turn. The agent of an episode is in
        its ``metadata["agent"]``.

        Args:
            tasks: Tasks to play.
            players: Players of the same kinds as those given to the constructor.
            name: Name of this call, included in the request ids, which determine the random numbers.
        """

        async def one(number: int, task: TaskRow) -> list[Episode]:
            return await self._play(task, players, f"{name}/{number}")

        async def play_groups() -> list[list[Episode]]:
            at_once = self.config.concurrency  # no more environments than rows in a batch
            await self._envs.reserve(tasks[:at_once], self.config.step_timeout)
            return await play_tasks(tasks, one, at_once=at_once)

        played = self._loop.run(play_groups())
        return [episode for episodes in played for episode in episodes]

    async def _play(self, task: TaskRow, players: Players, request_id: str) -> list[Episode]:
        metadata = {"request": request_id, "group": task["index"]}
        # The agent that the policy plays, if the environment plays the others.
        side = str(task["env_kwargs"].get("agent", ""))
        if side and side in players:
            metadata["agent"] = side
        policy, context = players.get(side, players[""])
        episodes = await self._envs.play_all(
            task,
            policy,
            context,
            self.config,
            others=players,
            max_total_tokens=self.max_total_tokens,
            request_id=request_id,
            metadata=metadata,
            log_errors=False,  # the trainer logs one line for all errors of a step
        )
        if len(episodes) == 1:
            return episodes
        for episode in episodes:  # compared only with episodes in the same role
            episode.metadata["group"] = f"{task['index']}/{episode.metadata['agent']}"
        return [episode for episode in episodes if episode.turns or episode.error]

    def close(self) -> None:
        """Close the environments and the event loop."""
        self._loop.close()
        self._envs.close()


def _every_source(config: TrainConfig) -> list[EnvChoice]:
    """Return the environments of training and evaluation, without duplicates."""
    return list({source.label: source for source in (*config.sources, *config.eval_sources)}.values())
