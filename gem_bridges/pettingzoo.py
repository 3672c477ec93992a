"""`AECEnv` and `ParallelEnv`: views of a `MultiAgentEnv` with PettingZoo's names and rules.

    env = AECEnv(gem_core.make("multi:KuhnPoker-v0", opponent="self"))
    env.reset(seed=0)
    for agent in env.agent_iter():
        observation, reward, termination, truncation, info = env.last()
        env.step(None if termination or truncation else policy(observation))

They are subclasses of PettingZoo's classes and pass its tests. Actions and observations are text. Samples of
an action space are random legal responses if the agent is active, and "" otherwise; they follow the seed of
the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gem_bridges._extras import needs_extra
from gem_core._core import ResetOptions
from gem_core._observations import observation_text
from gem_core._util.checks import expected
from gem_core.errors import ConfigError, ResetNeeded
from gem_core.multiagent import MultiAgentEnv
from gem_core.multiagent._ledger import Ledger

with needs_extra("gem_bridges.pettingzoo", "pettingzoo"):
    import pettingzoo

    from gem_bridges.gymnasium._spaces import TextSpace


class _ZooText(str):
    """An observation: a str with the `dtype` of its space, which PettingZoo's tests compare."""

    dtype = np.dtype(str)


class _View:
    """Base class of both views.

    Args:
        env: The environment; closed with the view. Nothing else may step it.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        if not isinstance(env, MultiAgentEnv):
            raise expected(
                "env", env, "a MultiAgentEnv, such as gem_core.make('multi:KuhnPoker-v0', opponent='self')"
            )
        self.env = env
        self.ledger = Ledger(env)
        self.metadata = {"name": env.spec.id if env.spec else type(env).__name__, "render_modes": []}
        self.render_mode = None
        self.agents: list[str] = []
        self.action_spaces = {agent: TextSpace(partial(self._sample, agent)) for agent in env.possible_agents}
        self.observation_spaces = {agent: TextSpace() for agent in env.possible_agents}

    @property
    def possible_agents(self) -> list[str]:
        """All agents that can take part."""
        return self.env.possible_agents

    def observation_space(self, agent: str) -> TextSpace:
        """Return the observation space of `agent`; the same object each time."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> TextSpace:
        """Return the action space of `agent`; the same object each time."""
        return self.action_spaces[agent]

    def render(self) -> None:
        """Do nothing: observations are text already."""

    def state(self) -> dict[str, Any]:
        """Return the whole state of the environment."""
        state: dict[str, Any] = self.env.get_state()
        return state

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _start(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Start an episode; unknown options are ignored, as PettingZoo's environments do."""
        options = options or {}
        known: Any = {key: options[key] for key in ResetOptions.__annotations__ if key in options}
        self.ledger.reset(seed, known or None)
        self.agents = list(self.env.agents)

    def _observation(self, agent: str) -> _ZooText:
        return _ZooText(observation_text(self.ledger.observe(agent)))

    def _sample(self, agent: str) -> str:
        return self.env.sample_random_action(agent) if agent in self.env.active_agents() else ""


class ParallelEnv(_View, pettingzoo.ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """PettingZoo's parallel API: each step takes an action from every agent in `agents`.

    In a turn-based environment, actions of inactive agents are ignored; the infos say under "active" whether
    an agent's next action counts.
    """

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, _ZooText], dict[str, dict[str, Any]]]:
        """Start an episode; return observations and infos by agent."""
        self._start(seed, options)
        return {agent: self._observation(agent) for agent in self.agents}, self._infos(self.agents)

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[
        dict[str, _ZooText], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
    ]:
        """Take an action from every agent.

        Raises:
            ConfigError: An agent is unknown or has no action.
        """
        present = list(self.agents)
        if set(actions) != set(present):
            raise ConfigError(
                f"actions for {', '.join(sorted(map(str, actions)))}: expected one for each of "
                f"{', '.join(present) or 'no agent, because the episode is over'}"
            )
        self.ledger.step({agent: actions[agent] for agent in self.ledger.active()})
        self.agents = list(self.env.agents)
        everyone = present + [agent for agent in self.agents if agent not in present]
        results = {agent: self.ledger.collect(agent) for agent in everyone}
        return (
            {agent: self._observation(agent) for agent in results},
            {agent: result[1] for agent, result in results.items()},
            {agent: result[2] for agent, result in results.items()},
            {agent: result[3] for agent, result in results.items()},
            self._infos(everyone),
        )

    def _infos(self, agents: list[str]) -> dict[str, dict[str, Any]]:
        active = self.ledger.active()
        return {agent: {**self.ledger.info(agent), "active": agent in active} for agent in agents}


class AECEnv(_View, pettingzoo.AECEnv[str, Any, Any]):  # type: ignore[misc]  # untyped
    """PettingZoo's AEC API: agents step one after another, including those that act simultaneously.

    A finished agent is selected once more, takes the action None, and then disappears.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self.agent_selection = ""
        self.rewards: dict[str, float] = {}
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self._actions: dict[str, str] = {}

    @property
    def _cumulative_rewards(self) -> dict[str, float]:
        return self.ledger.owed

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode; `last` returns the first observation."""
        self._start(seed, options)
        self._actions = {}
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._take_books()

    def observe(self, agent: str) -> _ZooText:
        """Return the current observation of `agent`."""
        return self._observation(agent)

    def last(self, observe: bool = True) -> tuple[_ZooText | None, float, bool, bool, dict[str, Any]]:
        """Return the step result of the selected agent; the observation is None if `observe` is False."""
        agent = self._selected()
        shown = self.observe(agent) if observe else None
        return (
            shown, self.ledger.owed[agent], self.terminations[agent], self.truncations[agent],
            self.infos[agent],
        )  # fmt: skip

    def agent_iter(self, max_iter: int = 2**63) -> Iterator[str]:
        """Yield the selected agent until no agent is left, at most `max_iter` times."""
        while self.agents and max_iter > 0:
            max_iter -= 1
            yield self.agent_selection

    def step(self, action: str | None) -> None:
        """Take the action of the selected agent.

        Raises:
            ConfigError: The action is None but the agent has not finished, or the reverse.
        """
        agent = self._selected()
        through = agent in self.ledger.ends
        if through != (action is None):
            expected = "None, because it has finished" if through else "a text"
            raise ConfigError(f"action={action!r:.80} of {agent}: expected {expected}")
        if action is None:
            self.agents.remove(agent)
            del self.ledger.owed[agent]
            self.rewards = dict.fromkeys(self.agents, 0.0)
        else:
            self.ledger.owed[agent] = 0.0
            self._actions[agent] = action
            self.rewards = dict.fromkeys(self.agents, 0.0)
            if set(self._actions) == set(self.ledger.active()):
                actions, self._actions = self._actions, {}
                owed = dict(self.ledger.owed)
                self.ledger.step(actions)
                self.agents += [agent for agent in self.env.agents if agent not in self.agents]
                self.rewards = {a: self.ledger.owed[a] - owed.get(a, 0.0) for a in self.agents}
        self._take_books()

    def _take_books(self) -> None:
        """Copy the ledger's records of each agent, and select the next one."""
        ends = self.ledger.ends
        self.terminations = {agent: ends.get(agent) == "terminated" for agent in self.agents}
        self.truncations = {agent: ends.get(agent) == "truncated" for agent in self.agents}
        self.infos = {agent: self.ledger.info(agent) for agent in self.agents}
        through = [agent for agent in self.agents if agent in ends]
        waiting = [agent for agent in self.ledger.active() if agent not in self._actions]
        self.agent_selection = next(iter(through or waiting), "")

    def _selected(self) -> str:
        if not self.agents:
            raise ResetNeeded("no agent is left in the episode; call reset() first")
        return self.agent_selection
