"""`Ledger`: the rewards and infos of each agent since it last acted.

An agent that acts in turn sees the environment once per round: its reward is the sum over the steps of the
round, its info the union of their infos. Every view of a `MultiAgentEnv` in which one agent steps at a time
uses a ledger, so all views give the same rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core._core import Observation, ResetOptions, StepResult
from gem_core.errors import EnvError
from gem_core.multiagent._multi_agent_env import MultiAgentEnv

MAX_MOVES = 1000
"""Limit on the steps of the other agents between two turns of an agent."""


class Ledger:
    """Steps an environment and accumulates rewards and infos per agent.

    Args:
        env: The environment; nothing else may step it.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        self.env = env
        self.owed: dict[str, float] = {}
        self.ends: dict[str, str] = {}
        """ "terminated" or "truncated", by finished agent."""
        self._shown: dict[str, Observation] = {}
        self._infos: dict[str, dict[str, Any]] = {}

    def reset(self, seed: int | None, options: ResetOptions | None = None) -> None:
        """Start an episode."""
        # The `reset` of an environment written for GEM may accept a seed only.
        observations, infos = (
            self.env.reset(seed) if options is None else self.env.reset(seed, options=options)
        )
        self._shown = dict(observations)
        self._infos = {agent: dict(info) for agent, info in infos.items()}
        self.owed = dict.fromkeys(self.env.agents, 0.0)
        self.ends = {}

    def step(self, actions: Mapping[str, str]) -> None:
        """Step the environment."""
        before = list(self.env.agents)
        for agent in actions:  # it has seen its infos; collect new ones
            self._infos[agent] = {}
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._shown = dict(observations)
        for agent in [*before, *(agent for agent in self.env.agents if agent not in before)]:
            self.owed[agent] = self.owed.get(agent, 0.0) + rewards.get(agent, 0.0)
            self._infos.setdefault(agent, {}).update(infos.get(agent, {}))
            if terminated.get(agent):
                self.ends[agent] = "terminated"
            elif truncated.get(agent) or agent not in self.env.agents:  # removed without an end
                self.ends[agent] = "truncated"

    def active(self) -> list[str]:
        """Return the agents that act next; empty when all have finished.

        Raises:
            EnvError: The episode continues, but no agent is active.
        """
        active = self.env.active_agents()
        if not active and self.env.agents:
            raise EnvError(
                f"no agent is active although the episode of {', '.join(self.env.agents)} continues: "
                f"{self.env!r} must select an agent or end the episode"
            )
        return active

    def observe(self, agent: str) -> Observation:
        """Return the observation of `agent` from the last step, or else from the environment."""
        if agent in self._shown:
            return self._shown[agent]
        return "" if agent in self.ends else self.env.observe(agent)

    def info(self, agent: str) -> dict[str, Any]:
        """Return the info for `agent` since it last acted."""
        return dict(self._infos.get(agent, {}))

    def collect(self, agent: str) -> StepResult:
        """Return the step result of `agent` since it last acted, and reset its reward to 0."""
        reward, self.owed[agent] = self.owed.get(agent, 0.0), 0.0
        end = self.ends.get(agent)
        info: Any = self.info(agent)
        return self.observe(agent), reward, end == "terminated", end == "truncated", info

    def get_state(self) -> dict[str, Any]:
        """Return the state, JSON-serializable, without the state of the environment."""
        return {"owed": dict(self.owed), "ends": dict(self.ends), "shown": dict(self._shown),
                "infos": {agent: dict(info) for agent, info in self._infos.items()}}  # fmt: skip

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a result of `get_state`."""
        self.owed, self.ends = dict(state["owed"]), dict(state["ends"])
        self._shown = dict(state["shown"])
        self._infos = {agent: dict(info) for agent, info in state["infos"].items()}
