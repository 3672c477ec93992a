"""`AgentSelector`: the order in which agents act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from gem_core._util.checks import check_choice
from gem_core.errors import ConfigError

SelectorMode: TypeAlias = Literal["sequential", "parallel"]


class AgentSelector:
    """Selects the agents that act next among those still in the episode.

    Args:
        agents: Agents in turn order.
        mode: "sequential" selects one agent at a time, in turn order; "parallel" selects all of them.

    Raises:
        ConfigError: The mode is unknown.

    Attributes:
        selected: The agent to act next, None if no agent is left. In parallel mode the first agent.
        settled: Whether the next agent has been decided since `MultiAgentEnv.step` began.
    """

    selected: str | None
    settled: bool

    def __init__(self, agents: Sequence[str], mode: SelectorMode = "sequential") -> None:
        self.mode = check_choice("mode", mode, get_args(SelectorMode))
        self.reinit(agents)

    def get_active_agents(self) -> list[str]:
        """Return the agents that act next."""
        if self.mode == "parallel":
            return list(self._agents)
        return [] if self.selected is None else [self.selected]

    def next(self) -> None:
        """Select the next agent in turn order. Has no effect in parallel mode."""
        if self.mode == "sequential" and self.selected is not None:
            self.selected = self._after(self.selected)
        self.settled = True

    def select(self, agent: str) -> None:
        """Let `agent` act next; the current step then does not advance the order.

        Raises:
            ConfigError: The agent is not in the episode.
        """
        if agent not in self._agents:
            raise ConfigError(f"unknown agent {agent!r}. Agents in the episode: {', '.join(self._agents)}")
        self.selected, self.settled = agent, True

    def is_first(self) -> bool:
        """Return whether the selected agent comes first in turn order."""
        return self._agents[:1] == [self.selected]

    def is_last(self) -> bool:
        """Return whether the selected agent comes last in turn order."""
        return self._agents[-1:] == [self.selected]

    def reinit(self, agents: Sequence[str]) -> None:
        """Restart with these agents; the first one is selected."""
        self._agents = list(agents)
        self.selected = next(iter(agents), None)
        self.settled = False

    def add_agent(self, agent: str) -> None:
        """Append an agent to the turn order. Has no effect if it is already there."""
        self._agents = list(dict.fromkeys((*self._agents, agent)))
        self.selected = self.selected or agent

    def remove_agent(self, agent: str) -> None:
        """Remove an agent. If it was selected, the agent after it is selected instead."""
        if agent == self.selected:
            successor = self._after(agent)
            self.selected = None if successor == agent else successor
            self.settled = True
        self._agents = [other for other in self._agents if other != agent]

    def get_state(self) -> list[object]:
        """Return the turn order and the selected agent, JSON-serializable."""
        return [list(self._agents), self.selected]

    def set_state(self, state: Sequence[object]) -> None:
        """Restore a result of `get_state`."""
        agents, selected = state
        assert isinstance(agents, list)
        assert selected is None or isinstance(selected, str)
        self.reinit(agents)
        self.selected = selected

    def _after(self, agent: str) -> str:
        following = self._agents.index(agent) + 1
        return self._agents[following % len(self._agents)]
