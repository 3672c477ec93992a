"""`AgentSelector`: whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from gem_core.errors import ConfigError

SelectorMode: TypeAlias = Literal["sequential", "parallel"]


class AgentSelector:
    """Keeps the order of the agents that are still in the episode.

    Args:
        agents: In the order of their turns.
        mode: "sequential": one agent acts at a time, in turn. "parallel": all act at once.

    Raises:
        ConfigError: Another mode.
    """

    settled: bool
    """Whether who acts next has been decided since `MultiAgentEnv.step` began."""
    _agents: list[str]
    _index: int

    def __init__(self, agents: Sequence[str], mode: SelectorMode = "sequential") -> None:
        if mode not in ("sequential", "parallel"):
            raise ConfigError(f"mode must be 'sequential' or 'parallel', not {mode!r}")
        self.mode = mode
        self.reinit(agents)

    @property
    def selected(self) -> str | None:
        """The agent whose turn it is; None when no agent is left. In parallel mode the first one."""
        return self._agents[self._index] if self._agents else None

    def get_active_agents(self) -> list[str]:
        """The agents that are to act now."""
        if self.mode == "parallel":
            return list(self._agents)
        return self._agents[self._index : self._index + 1]

    def next(self) -> None:
        """Go on to the next agent in the order; without effect in parallel mode."""
        if self.mode == "sequential" and self._agents:
            self._index = (self._index + 1) % len(self._agents)
        self.settled = True

    def select(self, agent: str) -> None:
        """Let `agent` act next; the step that is being made then leaves the order alone.

        Raises:
            ConfigError: It is not in the episode.
        """
        if agent not in self._agents:
            raise ConfigError(f"no agent {agent!r} is in the episode; there are: {', '.join(self._agents)}")
        self._index = self._agents.index(agent)
        self.settled = True

    def is_first(self) -> bool:
        """Whether the first agent of the order is selected."""
        return self._index == 0

    def is_last(self) -> bool:
        """Whether the last agent of the order is selected."""
        return self._index == len(self._agents) - 1

    def reinit(self, agents: Sequence[str]) -> None:
        """Start anew with these agents."""
        self._agents = list(agents)
        self._index = 0
        self.settled = False

    def add_agent(self, agent: str) -> None:
        """Put an agent at the end of the order, unless it is there."""
        if agent not in self._agents:
            self._agents.append(agent)

    def remove_agent(self, agent: str) -> None:
        """Take an agent out; when it was selected, the one after it is selected now."""
        if agent not in self._agents:
            return
        index = self._agents.index(agent)
        del self._agents[index]
        if index < self._index:
            self._index -= 1
        elif index == self._index:
            self.settled = True
        if self._index >= len(self._agents):
            self._index = 0

    def get_state(self) -> list[object]:
        """The order and the position in it, JSON-able."""
        return [list(self._agents), self._index]

    def set_state(self, state: Sequence[object]) -> None:
        """Go back to what `get_state` returned."""
        agents, index = state
        assert isinstance(agents, list)
        assert isinstance(index, int)
        self.reinit(agents)
        self._index = index
