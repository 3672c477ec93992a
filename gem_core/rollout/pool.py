"""Environments kept from one episode to the next."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gem_core.core import Env
from gem_core.envs.multiagent.multi_agent_env import MultiAgentEnv
from gem_core.registration import WrapperLike, wrap
from gem_core.rollout.agents import AnyContext, AnyPolicy, run_agents
from gem_core.rollout.runner import require_images, run_episode
from gem_core.rollout.trajectory import Episode
from gem_core.tasks import TaskRow, TaskSource

logger = logging.getLogger(__name__)

MAX_IDLE = 32
"""Environments that a pool keeps for later, or as many as it ever played at the same time."""


class EnvPool:
    """Plays task rows, reusing the environments of episodes that ended well.

    Of the environments that no episode is using it keeps `MAX_IDLE`, or as many as episodes were ever
    played at the same time where that is more; beyond that it closes those whose kind (id and
    arguments) was played longest ago. For one event loop.

    Args:
        wrappers: Put around every environment, as in `gem_core.make`.
    """

    def __init__(self, wrappers: WrapperLike | Sequence[WrapperLike] = ()) -> None:
        self._wrappers = wrappers
        self._idle: dict[str, list[Env]] = {}  # by kind; the one played last stands last, none is empty
        self._playing = self._most_playing = 0

    def prepare(self, source: TaskSource, contexts: Iterable[AnyContext] = ()) -> list[str]:
        """Build one environment of `source` now, so that a wrong id or argument shows.

        Args:
            source: What will be played.
            contexts: What it will be played with, where that is known.

        Returns:
            Its agents that `play_all` makes an episode of; none when it has one agent alone.

        Raises:
            GemError: As `TaskSource.make`.
            ConfigError: It shows pictures, and the context takes text only.
        """
        env = self._make(source)
        self._keep(source.label, env)
        for context in contexts:
            require_images(env, None, context)
        return env.possible_agents if isinstance(env, MultiAgentEnv) else []

    async def play(
        self,
        task: TaskRow,
        policy: AnyPolicy,
        context: AnyContext,
        **limits: Any,
    ) -> Episode:
        """Play the episode of a task row; `limits` and what else there is go to `run_episode`."""
        (episode,) = await self.play_all(task, policy, context, one_agent=True, **limits)
        return episode

    async def play_all(
        self,
        task: TaskRow,
        policy: AnyPolicy,
        context: AnyContext,
        *,
        others: Mapping[str, tuple[AnyPolicy, AnyContext]] = MappingProxyType({}),
        one_agent: bool = False,
        **limits: Any,
    ) -> list[Episode]:
        """As `play`, with an episode of each agent.

        Args:
            task: What to play.
            policy: Plays every agent that has none of its own.
            context: Of `policy`.
            others: Policy and context of agents that have their own.
            one_agent: An environment with several agents is refused.
            **limits: And what else there is, for `run_episode`.

        Raises:
            ConfigError: There are several agents, though `one_agent` says otherwise.
        """
        source = TaskSource(task["env_id"], task["env_kwargs"])
        env = self._take(source.label) or self._make(source)
        self._playing += 1
        self._most_playing = max(self._most_playing, self._playing)
        try:
            episodes = await self._played(env, task, policy, context, others, one_agent, limits)
        finally:
            self._playing -= 1
        if all(episode.stop_reason != "env_error" for episode in episodes):  # else it has been closed
            self._keep(source.label, env)
        return episodes

    async def _played(
        self,
        env: Env,
        task: TaskRow,
        policy: AnyPolicy,
        context: AnyContext,
        others: Mapping[str, tuple[AnyPolicy, AnyContext]],
        one_agent: bool,
        limits: dict[str, Any],
    ) -> list[Episode]:
        if isinstance(env, MultiAgentEnv) and not one_agent:
            limits["wrappers"] = self._wrappers
            players = {agent: others.get(agent, (policy, context)) for agent in env.possible_agents}
            policies = {agent: player[0] for agent, player in players.items()}
            contexts = {agent: player[1] for agent, player in players.items()}
            agents = await run_agents(env, policies, contexts, seed=task["seed"], **limits)
            return list(agents.values())
        return [await run_episode(env, policy, context, seed=task["seed"], **limits)]

    def _take(self, kind: str) -> Env | None:
        """An idle environment of that kind."""
        envs = self._idle.pop(kind, [])
        env = envs.pop() if envs else None
        if envs:
            self._idle[kind] = envs
        return env

    def _keep(self, kind: str, env: Env) -> None:
        """Keep an environment for later, and close what is too many."""
        envs = self._idle.pop(kind, [])
        envs.append(env)
        self._idle[kind] = envs
        count = sum(map(len, self._idle.values()))
        for _ in range(count - max(MAX_IDLE, self._most_playing)):
            oldest, unused = next(iter(self._idle.items()))
            too_many = unused.pop(0)
            if not unused:
                del self._idle[oldest]
            try:
                too_many.close()
            except Exception:  # no matter of the episode that was played just now
                logger.warning("closing %r failed", too_many, exc_info=True)

    def _make(self, source: TaskSource) -> Env:
        env = source.make()
        # With several agents the wrappers go around each one's view.
        return env if env.multi_agent else wrap(env, self._wrappers)

    def close(self) -> None:
        """Close the environments that no episode is using."""
        for envs in self._idle.values():
            while envs:
                envs.pop().close()
