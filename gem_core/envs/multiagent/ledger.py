"""`Ledger`: what each agent is owed and has to be told since it last acted.

An agent that acts in turn sees the world once a round: its reward is the sum over the steps of the
round, its info what the steps said to it. Every view of a `MultiAgentEnv` in which one agent steps at a
time is made with a ledger, so that all of them pay alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core.core import Observation, ResetOptions, StepResult
from gem_core.envs.multiagent.multi_agent_env import MultiAgentEnv
from gem_core.errors import EnvError


class Ledger:
    """Makes the steps of an environment and keeps the books.

    Args:
        env: Stepped through this object only.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        self.env = env
        self.owed: dict[str, float] = {}
        self.ends: dict[str, str] = {}
        """ "terminated" or "truncated", by agent that is through."""
        self._shown: dict[str, Observation] = {}
        self._told: dict[str, dict[str, Any]] = {}

    def reset(self, seed: int | None, options: ResetOptions | None = None) -> None:
        """Start an episode."""
        # An environment written for GEM may take a seed and nothing else.
        observations, infos = (
            self.env.reset(seed) if options is None else self.env.reset(seed, options=options)
        )
        self._shown = dict(observations)
        self._told = {agent: dict(info) for agent, info in infos.items()}
        self.owed = dict.fromkeys(self.env.agents, 0.0)
        self.ends = {}

    def step(self, actions: Mapping[str, str]) -> None:
        """Make one step."""
        before = list(self.env.agents)
        for agent in actions:  # what it has seen; from here on is what it will see next
            self._told[agent] = {}
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._shown = dict(observations)
        for agent in [*before, *(agent for agent in self.env.agents if agent not in before)]:
            self.owed[agent] = self.owed.get(agent, 0.0) + rewards.get(agent, 0.0)
            self._told.setdefault(agent, {}).update(infos.get(agent, {}))
            if terminated.get(agent):
                self.ends[agent] = "terminated"
            elif truncated.get(agent) or agent not in self.env.agents:  # taken out without an end
                self.ends[agent] = "truncated"

    def active(self) -> list[str]:
        """The agents that are to act now; empty when all are through.

        Raises:
            EnvError: The episode goes on and nobody is to act.
        """
        active = self.env.active_agents()
        if not active and self.env.agents:
            raise EnvError(
                f"no agent is to act, though the episode of {', '.join(self.env.agents)} goes on: "
                f"{self.env!r} must select one, or end"
            )
        return active

    def observe(self, agent: str) -> Observation:
        """What the last step showed `agent`, or else what the environment shows it now."""
        if agent in self._shown:
            return self._shown[agent]
        return "" if agent in self.ends else self.env.observe(agent)

    def told(self, agent: str) -> dict[str, Any]:
        """Info for `agent` since it last acted."""
        return dict(self._told.get(agent, {}))

    def collect(self, agent: str) -> StepResult:
        """What a step means for `agent` at its next turn or at its end; pays what it is owed."""
        reward, self.owed[agent] = self.owed.get(agent, 0.0), 0.0
        end = self.ends.get(agent)
        info: Any = self.told(agent)
        return self.observe(agent), reward, end == "terminated", end == "truncated", info

    def get_state(self) -> dict[str, Any]:
        """JSON-able; the environment's own state is not in it."""
        return {"owed": dict(self.owed), "ends": dict(self.ends), "shown": dict(self._shown),
                "told": {agent: dict(info) for agent, info in self._told.items()}}  # fmt: skip

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go back to what `get_state` returned."""
        self.owed, self.ends = dict(state["owed"]), dict(state["ends"])
        self._shown = dict(state["shown"])
        self._told = {agent: dict(info) for agent, info in state["told"].items()}
