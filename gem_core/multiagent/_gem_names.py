"""`GemNames`: methods of GEM's multi-agent environments that gem_core itself does not use.

They are here so that environments and clients written for GEM run unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from gem_core._core import Observation

AgentState: TypeAlias = tuple[Observation, float, bool, bool, dict[str, Any]]
"""Observation, return so far, terminated, truncated, and info of one agent."""


class GemNames:
    """Mixin of `MultiAgentEnv`.

    Attributes:
        shared_memory: Messages between agents: dicts with "from", "to", and "message".
        global_context: Free text for all agents.
    """

    shared_memory: list[dict[str, str]]
    global_context: str

    if TYPE_CHECKING:  # members of MultiAgentEnv
        agents: list[str]
        possible_agents: list[str]

        def active_agents(self) -> list[str]: ...
        def get_state(self, agent: str | None = None) -> Any: ...
        def require_agent(self, agent: str | None) -> str: ...

    @property
    def num_agents(self) -> int:
        """Number of agents still in the episode."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """Number of possible agents."""
        return len(self.possible_agents)

    def get_active_states(self) -> dict[str, AgentState]:
        """Return the states of the agents that act next, by agent."""
        return {agent: self.get_state(agent) for agent in self.active_agents()}

    def send_message(self, from_agent: str, to_agent: str, message: str) -> None:
        """Add a message to `shared_memory`.

        Raises:
            ConfigError: An agent is not in the episode.
        """
        ends = {"from": self.require_agent(from_agent), "to": self.require_agent(to_agent)}
        self.shared_memory.append({**ends, "message": message})

    def broadcast_message(self, from_agent: str, message: str) -> None:
        """Add a message to `shared_memory` for every other agent.

        Raises:
            ConfigError: The agent is not in the episode.
        """
        self.require_agent(from_agent)
        for receiver in self.agents:
            if receiver != from_agent:
                self.send_message(from_agent, receiver, message)
