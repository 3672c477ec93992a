"""Environments kept from one episode to the next."""

from __future__ import annotations

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


class EnvPool:
    """Plays task rows, reusing the environments of episodes that ended well.

    There are as many environments of a kind as episodes of it were ever played at the same time.
    For one event loop.

    Args:
        wrappers: Put around every environment, as in `gem_core.make`.
    """

    def __init__(self, wrappers: WrapperLike | Sequence[WrapperLike] = ()) -> None:
        self._wrappers = wrappers
        self._idle: dict[str, list[Env]] = {}

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
        self._idle.setdefault(source.label, []).append(env)
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
        idle = self._idle.setdefault(source.label, [])
        env = idle.pop() if idle else self._make(source)
        if isinstance(env, MultiAgentEnv) and not one_agent:
            limits["wrappers"] = self._wrappers
            players = {agent: others.get(agent, (policy, context)) for agent in env.possible_agents}
            policies = {agent: player[0] for agent, player in players.items()}
            contexts = {agent: player[1] for agent, player in players.items()}
            agents = await run_agents(env, policies, contexts, seed=task["seed"], **limits)
            episodes = list(agents.values())
        else:
            episodes = [await run_episode(env, policy, context, seed=task["seed"], **limits)]
        if all(episode.stop_reason != "env_error" for episode in episodes):  # else it has been closed
            idle.append(env)
        return episodes

    def _make(self, source: TaskSource) -> Env:
        env = source.make()
        # With several agents the wrappers go around each one's view.
        return env if env.multi_agent else wrap(env, self._wrappers)

    def close(self) -> None:
        """Close the environments that no episode is using."""
        for envs in self._idle.values():
            while envs:
                envs.pop().close()
