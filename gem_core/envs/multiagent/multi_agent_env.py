"""`MultiAgentEnv`: several agents in one episode; dicts by agent in, dicts by agent out.

    env = gem_core.make("multi:TicTacToe-v0", opponent="self")
    observations, infos = env.reset(seed=0)
    while env.agents:
        actions = {agent: policy(env.observe(agent)) for agent in env.active_agents()}
        observations, rewards, terminations, truncations, infos = env.step(actions)

The names are those of GEM, which are those of PettingZoo's parallel API, with one difference: only the
active agents act. `gem_core.envs.multiagent.zoo` has views with PettingZoo's exact rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, TypeAlias

from gem_core.core import Env, Observation, ResetOptions, check_options
from gem_core.envs.multiagent.selector import AgentSelector
from gem_core.errors import ConfigError

__all__ = ["AgentSelector", "MultiAgentEnv"]

AgentState: TypeAlias = tuple[Observation, float, bool, bool, dict[str, Any]]
"""Observation, return so far, terminated, truncated and info of one agent."""

StepResults: TypeAlias = tuple[
    dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]
"""By agent: observation, reward, terminated, truncated, info."""


class MultiAgentEnv(Env):
    """Base class of environments with several agents.

    A subclass sets `possible_agents` and `agent_selector` in its constructor and overrides `observe`
    and `_process_actions`; `new_episode`, `random_action` and `best_action` where it has something to
    say there. It draws from `self.random` and lists its own state in `state_fields`, after those of
    this class, as every environment does.

    Attributes:
        possible_agents: All agents there can be.
        agents: Those still in the episode.
        agent_selector: Whose turn it is; None lets all act at once.
        terminations: Whether the episode of an agent has ended by the rules; by agent.
        truncations: Whether a limit ended it.
        rewards: Of the last step.
        infos: Of the last step.
        shared_memory: Messages between agents: dicts with "from", "to" and "message".
        global_context: Free text for all.
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
        self.agents: list[str] = []
        self.agent_selector: AgentSelector | None = None
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.rewards: dict[str, float] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self._cumulative_rewards: dict[str, float] = {}
        self.shared_memory: list[dict[str, str]] = []
        self.global_context = ""

    # -- for subclasses -----------------------------------------------------------------------

    def new_episode(self, index: int | None) -> None:
        """Set up an episode, drawing from `self.random` only.

        Args:
            index: The option of that name, for environments with `indexed` set; None when not given.
        """

    indexed: ClassVar[bool] = False
    """Whether `reset` takes the option ``index``, the number of a task."""

    def observe(self, agent: str) -> Observation:
        """What `agent` is shown now; asking changes nothing."""
        raise NotImplementedError

    def _process_actions(self, actions: dict[str, str]) -> StepResults:
        """Carry out the actions of the active agents.

        Returns:
            Dicts by agent; an agent that is missing in one of them is paid 0, goes on, or has nothing to
            be told. `self.terminations` and `self.truncations` may be changed instead of returned.
        """
        raise NotImplementedError

    def random_action(self, agent: str, random: Random) -> str:
        """A legal response of `agent`, drawn from `random`; changes nothing."""
        raise NotImplementedError(f"{type(self).__name__} does not define random_action()")

    def best_action(self, agent: str, random: Random) -> str | None:
        """A best response of `agent`, which may be a random one; None where none is known."""
        return None

    # -- the contract -------------------------------------------------------------------------

    def reset(  # type: ignore[override]  # dicts by agent, as in GEM and PettingZoo
        self, seed: int | None = None, *, options: ResetOptions | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Start an episode with all possible agents.

        Returns:
            Observations and infos by agent.
        """
        check_options(options, (("index", "state") if self.indexed else ("state",)), type(self).__name__)
        options = options or {}
        self.begin_episode(seed)
        if "state" in options:
            self.resume_episode(options["state"])
            if seed is not None:
                self.begin_episode(seed)
        else:
            self.agents = list(self.possible_agents)
            self.terminations = dict.fromkeys(self.agents, False)
            self.truncations = dict.fromkeys(self.agents, False)
            self.rewards = dict.fromkeys(self.agents, 0.0)
            self.infos = {agent: {} for agent in self.agents}
            self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
            self.shared_memory = []
            self.global_context = ""
            if self.agent_selector is not None:
                self.agent_selector.reinit(self.agents)
            self.new_episode(options.get("index"))
        return {agent: self.observe(agent) for agent in self.agents}, {
            agent: dict(self.infos[agent]) for agent in self.agents
        }

    def step(self, action: Mapping[str, str]) -> StepResults:  # type: ignore[override]  # see reset
        """Take the responses of the active agents, by agent.

        Returns:
            ``(observations, rewards, terminations, truncations, infos)``, each by agent: the last four
            for every agent that was in the episode, the first for those that have something to see.
            Agents that are through are no longer in `agents`; without any left the episode is over.

        Raises:
            ConfigError: No dict, an active agent without an action, or an action of another one.
            ResetNeeded: Before the first `reset`, or after the last agent was through.
        """
        self.require_reset()
        self._check_actions(action)
        present = list(self.agents)
        if self.agent_selector is not None:
            self.agent_selector.settled = False
        observations, rewards, terminations, truncations, infos = self._process_actions(dict(action))
        present += [agent for agent in self.agents if agent not in present]
        self.rewards = {agent: float(rewards.get(agent, 0.0)) for agent in present}
        self.infos = {agent: dict(infos.get(agent, {})) for agent in present}
        ended = {agent: bool(terminations.get(agent) or self.terminations.get(agent)) for agent in present}
        cut = {
            agent: not ended[agent] and bool(truncations.get(agent) or self.truncations.get(agent))
            for agent in present
        }
        for agent in present:
            self._cumulative_rewards[agent] = self._cumulative_rewards.get(agent, 0.0) + self.rewards[agent]
            self.terminations[agent], self.truncations[agent] = ended[agent], cut[agent]
        if self.agent_selector is not None and not self.agent_selector.settled:
            self.agent_selector.next()
        result = (dict(observations), dict(self.rewards), ended, cut,
                  {agent: dict(info) for agent, info in self.infos.items()})  # fmt: skip
        for agent in present:
            if ended[agent] or cut[agent] or agent not in self.agents:
                self._drop(agent)
        if not self.agents:
            self.end_episode()
        return result

    def active_agents(self) -> list[str]:
        """The agents that are to act now."""
        if self.agent_selector is None:
            return list(self.agents)
        return [agent for agent in self.agent_selector.get_active_agents() if agent in self.agents]

    def sample_random_action(self, agent: str | None = None) -> str:
        """A random legal response of `agent`; None is the first active one."""
        return self.random_action(self._known(agent), self.action_random)

    def oracle_action(self, agent: str | None = None) -> str | None:
        """A best response of `agent` where one is known; None is the first active one."""
        return self.best_action(self._known(agent), self.action_random)

    @property
    def num_agents(self) -> int:
        """Agents still in the episode."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """All agents there can be."""
        return len(self.possible_agents)

    # -- state --------------------------------------------------------------------------------

    def get_state(self, agent: str | None = None) -> Any:
        """The state of one agent as an `AgentState`; without `agent` the whole state as JSON-able data."""
        if agent is not None:
            return self._agent_state(self._known(agent))
        state = super().get_state()
        state["selector"] = None if self.agent_selector is None else self.agent_selector.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        if self.agent_selector is not None:
            self.agent_selector.set_state(state["selector"])

    def get_active_states(self) -> dict[str, AgentState]:
        """The states of the agents that are to act now."""
        return {agent: self._agent_state(agent) for agent in self.active_agents()}

    # -- agents and messages ------------------------------------------------------------------

    def add_agent(self, agent_id: str) -> None:
        """Take an agent into the running episode, last in the order."""
        if agent_id in self.agents:
            return
        self.agents.append(agent_id)
        self.terminations[agent_id] = self.truncations[agent_id] = False
        self.rewards[agent_id] = self._cumulative_rewards[agent_id] = 0.0
        self.infos[agent_id] = {}
        if self.agent_selector is not None:
            self.agent_selector.add_agent(agent_id)

    def remove_agent(self, agent_id: str) -> None:
        """Take an agent out of the running episode; its record is forgotten."""
        if agent_id in self.agents:
            self._drop(agent_id)

    def send_message(self, from_agent: str, to_agent: str, message: str) -> None:
        """Leave a message in `shared_memory`."""
        sender, receiver = self._known(from_agent), self._known(to_agent)
        self.shared_memory.append({"from": sender, "to": receiver, "message": message})

    def broadcast_message(self, from_agent: str, message: str) -> None:
        """Leave a message for every other agent in `shared_memory`."""
        sender = self._known(from_agent)
        for agent in self.agents:
            if agent != sender:
                self.send_message(sender, agent, message)

    # -- plumbing -----------------------------------------------------------------------------

    def _check_actions(self, actions: Mapping[str, str]) -> None:
        if not isinstance(actions, Mapping):
            raise ConfigError(
                f"actions are a dict by agent here, not a {type(actions).__name__}: {self!r} has several "
                f"agents ({', '.join(self.possible_agents)})"
            )
        active = self.active_agents()
        for agent in actions:
            if agent not in active:
                known = "is not to act now" if agent in self.possible_agents else "is unknown"
                raise ConfigError(f"agent {agent!r} {known}; to act: {', '.join(active)}")
        for agent in active:
            if agent not in actions:
                raise ConfigError(f"the action of agent {agent!r} is missing; to act: {', '.join(active)}")
            if not isinstance(actions[agent], str):
                kind = type(actions[agent]).__name__
                raise TypeError(f"an action is the response as a str, not {kind} (agent {agent!r})")

    def _agent_state(self, agent: str) -> AgentState:
        return (
            self.observe(agent),
            self._cumulative_rewards.get(agent, 0.0),
            self.terminations.get(agent, False),
            self.truncations.get(agent, False),
            self.infos.get(agent, {}),
        )

    def _known(self, agent: str | None) -> str:
        if agent is None:
            self.require_reset()
            agent = next(iter(self.active_agents()), None)
        if agent not in self.agents:
            raise ConfigError(
                f"no agent {agent!r} is in the episode; there are: {', '.join(self.agents) or 'none'}"
            )
        return agent

    def _drop(self, agent: str) -> None:
        if agent in self.agents:
            self.agents.remove(agent)
        for record in (self.terminations, self.truncations, self.rewards, self.infos,
                       self._cumulative_rewards):  # fmt: skip
            record.pop(agent, None)
        if self.agent_selector is not None:
            self.agent_selector.remove_agent(agent)
