"""`MultiAgentEnv`: several agents in one episode; dicts by agent in, dicts by agent out.

    env = gem_core.make("multi:TicTacToe-v0", opponent="self")
    observations, infos = env.reset(seed=0)
    while env.agents:
        actions = {agent: policy(env.observe(agent)) for agent in env.active_agents()}
        observations, rewards, terminations, truncations, infos = env.step(actions)

The names are GEM's, which follow PettingZoo's parallel API, with one difference: only the active agents
act. `gem_bridges.pettingzoo` has views that follow PettingZoo's rules exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, TypeAlias

from gem_core._core import Env, Observation, ResetOptions, check_reset_options
from gem_core.errors import ConfigError
from gem_core.multiagent._selector import AgentSelector

__all__ = ["AgentSelector", "MultiAgentEnv"]

StepResults: TypeAlias = tuple[
    dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]
"""By agent: observation, reward, terminated, truncated, info."""
AgentState: TypeAlias = tuple[Observation, float, bool, bool, dict[str, Any]]
"""Observation, return so far, terminated, truncated, and info of one agent."""


class MultiAgentEnv(Env):
    """Base class of environments with several agents.

    A subclass sets `possible_agents` and `agent_selector` in its constructor and overrides `observe` and
    `_process_actions`, and, where they apply, `new_episode`, `random_action`, and `best_action`. Like every
    environment, it draws from `self.random` and lists its own state in `state_fields`, after the fields of
    this class.

    Attributes:
        possible_agents: All agents that can take part.
        agents: The agents still in the episode.
        agent_selector: Selects the agents that act next; None lets all of them act at once.
        terminations: Whether the episode of an agent has ended by the rules, by agent.
        truncations: Whether a limit has ended it, by agent.
        rewards: Rewards of the last step, by agent.
        infos: Infos of the last step, by agent.
        shared_memory: Messages between agents: dicts with "from", "to", and "message".
        global_context: Free text for all agents.
    """

    multi_agent = True
    state_fields: ClassVar[tuple[str, ...]] = (
        "agents",
        "terminations",
        "truncations",
        "rewards",
        "infos",
        "_cumulative_rewards",
        "shared_memory",
        "global_context",
    )

    def __init__(self) -> None:
        self.possible_agents: list[str] = []
        self.agent_selector: AgentSelector | None = None
        self._clear_records()

    # -- for subclasses -----------------------------------------------------------------------

    def new_episode(self, index: int | None) -> None:
        """Set up an episode, drawing from `self.random` only.

        Args:
            index: The option ``index`` of `reset`, for environments that set `indexed`; None if absent.
        """

    indexed: ClassVar[bool] = False
    """Whether `reset` accepts the option ``index``, the index of a task."""

    def observe(self, agent: str) -> Observation:
        """Return the current observation of `agent`. Changes nothing."""
        raise NotImplementedError

    def _process_actions(self, actions: dict[str, str]) -> StepResults:
        """Carry out the actions of the active agents.

        Returns:
            Dicts by agent. An agent missing from one of them gets reward 0, continues, or has an empty info.
            A subclass may also set `self.terminations` and `self.truncations` instead of returning them.
        """
        raise NotImplementedError

    def random_action(self, agent: str, random: Random) -> str:
        """Return a legal response of `agent`, drawn from `random`. Changes nothing."""
        raise NotImplementedError(f"{type(self).__name__} does not define random_action()")

    def best_action(self, agent: str, random: Random) -> str | None:
        """Return a best response of `agent`, possibly drawn from `random`; None if none is known."""
        return None

    def readers_of(self, agent: str) -> Sequence[Any]:
        """Return `call_readers` for the responses of `agent`."""
        return ()

    # -- the contract -------------------------------------------------------------------------

    def reset(  # type: ignore[override]  # dicts by agent, as in GEM and PettingZoo
        self, seed: int | None = None, *, options: ResetOptions | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Start an episode with all possible agents.

        Returns:
            Observations and infos, each by agent.
        """
        check_reset_options(
            options, (("index", "state") if self.indexed else ("state",)), type(self).__name__
        )
        options = options or {}
        self.begin_episode(seed)
        if "state" in options:
            self.resume_episode(options["state"])
            if seed is not None:
                self.begin_episode(seed)
        else:
            self._clear_records()
            if self.agent_selector is not None:
                self.agent_selector.reinit(())
            for agent in self.possible_agents:
                self.add_agent(agent)
            self.new_episode(options.get("index"))
        observations = {agent: self.observe(agent) for agent in self.agents}
        return observations, {agent: dict(self.infos[agent]) for agent in self.agents}

    def step(self, action: Mapping[str, str]) -> StepResults:  # type: ignore[override]  # see reset
        """Take the responses of the active agents, by agent.

        Returns:
            ``(observations, rewards, terminations, truncations, infos)``, each by agent. The observations are
            of the agents that have something to see, the others of every agent that was in the episode.
            Finished agents are no longer in `agents`; the episode is over when no agent is left.

        Raises:
            ConfigError: The actions are not a dict, an active agent is missing, or another agent has one.
            ResetNeeded: Before the first `reset`, or after the last agent has finished.
        """
        self.require_reset()
        self._check_actions(action)
        before = list(self.agents)
        if self.agent_selector is not None:
            self.agent_selector.settled = False
        observations, rewards, terminations, truncations, infos = self._process_actions(dict(action))
        present = list(dict.fromkeys([*before, *self.agents]))
        for agent in present:
            reward = float(rewards.get(agent, 0.0))
            terminated = bool(terminations.get(agent) or self.terminations.get(agent))
            truncated = bool(truncations.get(agent) or self.truncations.get(agent))
            self.rewards[agent] = reward
            self.infos[agent] = dict(infos.get(agent, {}))
            self._cumulative_rewards[agent] = self._cumulative_rewards.get(agent, 0.0) + reward
            self.terminations[agent] = terminated
            self.truncations[agent] = truncated and not terminated
        if self.agent_selector is not None and not self.agent_selector.settled:
            self.agent_selector.next()
        results = (
            dict(observations),
            {agent: self.rewards[agent] for agent in present},
            {agent: self.terminations[agent] for agent in present},
            {agent: self.truncations[agent] for agent in present},
            {agent: dict(self.infos[agent]) for agent in present},
        )
        for agent in present:
            if agent not in self.agents or self.terminations[agent] or self.truncations[agent]:
                self.remove_agent(agent)
        if not self.agents:
            self.end_episode()
        return results

    def active_agents(self) -> list[str]:
        """Return the agents that act next."""
        if self.agent_selector is None:
            return list(self.agents)
        return [agent for agent in self.agent_selector.get_active_agents() if agent in self.agents]

    def sample_random_action(self, agent: str | None = None) -> str:
        """Return a random legal response of `agent`; None means the first active agent."""
        return self.random_action(self.require_agent(agent), self.action_random)

    def oracle_action(self, agent: str | None = None) -> str | None:
        """Return a best response of `agent` if one is known; None means the first active agent."""
        return self.best_action(self.require_agent(agent), self.action_random)

    # -- agents -------------------------------------------------------------------------------

    def add_agent(self, agent_id: str) -> None:
        """Add an agent to the running episode, last in turn order. Has no effect if it is already there."""
        if agent_id not in self.agents:
            self.agents.append(agent_id)
            self.terminations[agent_id] = self.truncations[agent_id] = False
            self.rewards[agent_id] = self._cumulative_rewards[agent_id] = 0.0
            self.infos[agent_id] = {}
            if self.agent_selector is not None:
                self.agent_selector.add_agent(agent_id)

    def remove_agent(self, agent_id: str) -> None:
        """Remove an agent and its records from the running episode."""
        if agent_id in self.agents:
            self.agents.remove(agent_id)
        for record in self._records():
            record.pop(agent_id, None)
        if self.agent_selector is not None:
            self.agent_selector.remove_agent(agent_id)

    def require_agent(self, agent: str | None) -> str:
        """Return `agent`, or the first active agent if it is None.

        Raises:
            ConfigError: The agent is not in the episode.
        """
        if agent is None:
            self.require_reset()
            agent = next(iter(self.active_agents()), None)
        if agent not in self.agents:
            names = ", ".join(self.agents) or "none"
            raise ConfigError(f"unknown agent {agent!r}. Agents in the episode: {names}")
        return agent

    # -- for environments and clients written for GEM ------------------------------------------

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

    # -- state --------------------------------------------------------------------------------

    def get_state(self, agent: str | None = None) -> Any:
        """Return the state of an agent as an `AgentState`, or the whole state, which is JSON-serializable."""
        if agent is not None:
            return self._agent_state(self.require_agent(agent))
        state = super().get_state()
        state["selector"] = None if self.agent_selector is None else self.agent_selector.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        if self.agent_selector is not None:
            self.agent_selector.set_state(state["selector"])

    # -- plumbing -----------------------------------------------------------------------------

    def _clear_records(self) -> None:
        """Clear the agents, their rewards, and their infos."""
        self.agents: list[str] = []
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.rewards: dict[str, float] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self._cumulative_rewards: dict[str, float] = {}
        self.shared_memory: list[dict[str, str]] = []
        self.global_context = ""

    def _records(self) -> Iterable[dict[str, Any]]:
        return self.terminations, self.truncations, self.rewards, self.infos, self._cumulative_rewards

    def _agent_state(self, agent: str) -> AgentState:
        ended = self.terminations[agent], self.truncations[agent]
        return (self.observe(agent), self._cumulative_rewards[agent], *ended, self.infos[agent])

    def _check_actions(self, actions: Mapping[str, str]) -> None:
        if not isinstance(actions, Mapping):
            raise ConfigError(
                f"actions must be a dict by agent, not a {type(actions).__name__}: {self!r} has several "
                f"agents ({', '.join(self.possible_agents)})"
            )
        active = self.active_agents()
        for agent in actions:
            if agent not in active:
                reason = "does not act now" if agent in self.possible_agents else "is unknown"
                raise ConfigError(f"agent {agent!r} {reason}; active agents: {', '.join(active)}")
        for agent in active:
            if agent not in actions:
                raise ConfigError(f"no action for agent {agent!r}; active agents: {', '.join(active)}")
            if not isinstance(actions[agent], str):
                kind = type(actions[agent]).__name__
                raise TypeError(f"an action must be a response as a str, not {kind} (agent {agent!r})")
