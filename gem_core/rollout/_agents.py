"""`run_agents`: plays one episode of a `MultiAgentEnv` and returns an `Episode` for each agent.

    env = gem_core.make("multi:KuhnPoker-v0", opponent="self")
    episodes = await run_agents(env, policy, context, seed=0)
    episodes["player_1"].total_reward

`run_episode` plays each agent as if it were alone in the environment. A turn of an agent lasts until the
agent acts again, and its reward is the sum of the agent's rewards in the meantime. Limits, contexts, and
policies therefore mean the same as in `run_episode`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gem_core._core import Env, ResetOptions, ResetResult, StepResult
from gem_core._registration import WrapperLike, wrap
from gem_core._util.checks import check_names
from gem_core._util.owners import calls_of
from gem_core._util.seeds import derive_seed
from gem_core._util.threads import ThreadCall
from gem_core._util.waiting import Overdue, cancel_all, within
from gem_core._wrapper import Wrapper
from gem_core.errors import ConfigError, EnvError
from gem_core.multiagent._ledger import MAX_MOVES, Ledger
from gem_core.multiagent._multi_agent_env import MultiAgentEnv
from gem_core.rollout._calls import ClosedOnError, close_env, inline_calls
from gem_core.rollout._dialogue import Context
from gem_core.rollout._limits import EpisodeLimits
from gem_core.rollout._messages import ChatPolicy, ChatReply, Message
from gem_core.rollout._policy import EnvPolicy, Generation, Policy
from gem_core.rollout._runner import DEFAULT_LIMITS, EpisodeArguments, run_episode
from gem_core.rollout._trajectory import Episode

if TYPE_CHECKING:
    from typing_extensions import Unpack

AnyPolicy: TypeAlias = Policy | ChatPolicy | EnvPolicy


async def run_agents(
    env: MultiAgentEnv,
    policies: AnyPolicy | Mapping[str, AnyPolicy],
    contexts: Context | Mapping[str, Context],
    limits: EpisodeLimits = DEFAULT_LIMITS,
    *,
    seed: int | None = None,
    options: ResetOptions | None = None,
    wrappers: WrapperLike | Sequence[WrapperLike] = (),
    turn_timeout: float | None = None,
    **arguments: Unpack[EpisodeArguments],
) -> dict[str, Episode]:
    """Play one episode of all agents.

    The caller that created `env` closes it, as with `run_episode`. An agent whose episode ends early, because
    of a limit or an empty response, has left. From then on its responses are empty texts, and the rewards
    that the environment gives for them are added to the agent's last turn, so an agent cannot escape a loss
    by leaving.

    Args:
        env: The environment; this function resets it.
        policies: One policy for all agents, or a mapping with one per agent.
        contexts: One context for all agents, or a mapping with one per agent.
        limits: Limits of each agent's episode.
        seed: Seed for the reset; None continues the environment's own stream.
        options: Options for the reset.
        wrappers: Wrappers around each agent's view, as in `gem_core.make`.
        turn_timeout: Maximum number of seconds for a response of a policy; a slower response counts as
            empty. None means no limit.
        arguments: Further arguments of `run_episode`, for each agent. `request_id` is the prefix of the
            request ids, which end with the name of the agent; None generates one per agent.
            ``metadata["agent"]`` of an episode names its agent.

    Returns:
        The episodes by agent, in the order of `possible_agents`. If an agent never had to act, its episode
        has no turns and is not trainable.

    Raises:
        ConfigError: A policy or context is missing, or is given for an unknown agent; or as in
            `run_episode`.
        PolicyError: As in `run_episode`.
    """
    async with ClosedOnError(env) as closing:
        if not env.multi_agent:
            raise ConfigError(f"{env!r} has a single agent; play it with run_episode")
        limits.check_limits()
        closing.timeout = limits.step_timeout
        agents = env.possible_agents
        policy_of, context_of = (
            _by_agent("policies", policies, agents),
            _by_agent("contexts", contexts, agents),
        )
        name = arguments.get("request_id")
        metadata = arguments.get("metadata") or {}
        table = _Table(env, limits.step_timeout)
        seat_limits = replace(limits, step_timeout=None)  # a seat waits for the other agents

        async def play(agent: str) -> Episode:
            policy = policy_of[agent]
            if turn_timeout is not None and not hasattr(policy, "bind"):
                policy = _TimeLimited(policy, turn_timeout)
            about = {**metadata, "agent": agent}
            request_id = None if name is None else f"{name}/{agent}"
            own: EpisodeArguments = {**arguments, "request_id": request_id, "metadata": about}
            if await table.over_before(agent):
                end = table.ledger.ends[agent]
                return Episode(
                    env_id=env.spec.id if env.spec else "", seed=seed, turns=[],
                    terminated=end == "terminated", truncated=end == "truncated",
                    stop_reason="terminated" if end == "terminated" else "truncated", trainable=False,
                    context_mode=context_of[agent].mode, metadata=about,
                )  # fmt: skip
            seat = wrap(_Seat(table, agent), wrappers)
            episode = await run_episode(seat, policy, context_of[agent], seat_limits, seed=seed, **own)
            if (
                isinstance(seat, Wrapper) and episode.stop_reason != "env_error"
            ):  # otherwise it is closed already
                await close_env(seat, limits.step_timeout)  # for what the wrappers hold
            await table.leave(agent)
            return episode

        with calls_of(env.unwrapped):  # also those of the agents' wrappers
            await table.open(seed, options)
            playing = [asyncio.ensure_future(play(agent)) for agent in agents]
        try:
            episodes = dict(zip(agents, await asyncio.gather(*playing), strict=True))
        except (Exception, asyncio.CancelledError):
            await cancel_all(playing)
            raise
        if any(episode.stop_reason == "env_error" for episode in episodes.values()):
            await closing.close()
        for agent, episode in episodes.items():
            owed = table.ledger.owed.get(agent, 0.0)
            if owed and episode.turns:
                episode.turns[-1].reward += owed
                episode.turns[-1].info["late_reward"] = owed
        return episodes


def _by_agent(argument: str, value: Any, agents: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(agents, value)
    check_names(value, agents, kind="agent", owner=argument)
    for agent in agents:
        if agent not in value:
            raise ConfigError(f"{argument}: missing agent {agent!r}")
    return dict(value)


class _Table:
    """The state of a running episode, in which agents wait for their turns."""

    def __init__(self, env: MultiAgentEnv, timeout: float | None) -> None:
        self.env = env
        self.ledger = Ledger(env)
        self._timeout = timeout
        self._actions: dict[str, str] = {}
        self._left: set[str] = set()
        self._failure: Exception | SystemExit | None = None
        self._streams = 0
        self._changed = asyncio.Condition()

    async def open(self, seed: int | None, options: ResetOptions | None) -> None:
        """Reset the environment; a failure ends the episode of every agent."""
        try:
            await self._call("reset", self.ledger.reset, seed, options)
            self.ledger.active()
            self._streams = self.env.action_random.getrandbits(64)
        except (Exception, SystemExit) as error:
            self._failure = error

    def stream_of(self, agent: str) -> str:
        """Return the name of the random stream of `agent`, which the reset determines."""
        return derive_seed("seat", self._streams, agent)

    async def over_before(self, agent: str) -> bool:
        """Wait for the first turn of `agent`; return whether its episode ended without one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ready(agent))
            return self._failure is None and agent in self.ledger.ends

    async def act(self, agent: str, action: str) -> StepResult:
        """Record an action, and wait until `agent` must act again or its episode has ended."""
        async with self._changed:
            self._actions[agent] = action
            await self._advance()
            await self._changed.wait_for(lambda: self._ready(agent))
            if self._failure is not None:
                raise self._failure
            return self.ledger.collect(agent)

    async def leave(self, agent: str) -> None:
        """Record that `agent` has left, and continue the episode without it."""
        async with self._changed:
            self._left.add(agent)
            if self._failure is None:
                await self._advance()

    def failed(self) -> Exception | SystemExit | None:
        """Return the error of the environment, or None."""
        return self._failure

    def _ready(self, agent: str) -> bool:
        if self._failure is not None or agent in self.ledger.ends:
            return True
        return agent in self.ledger.active() and agent not in self._actions

    async def _advance(self) -> None:
        """Step the environment while all actions are available. The lock is held throughout."""
        try:
            for _ in range(MAX_MOVES):
                active = self.ledger.active()
                if all(agent in self._left for agent in self.env.agents):
                    break  # no agent is waiting
                strangers = [agent for agent in active if agent not in self.env.possible_agents]
                if strangers:
                    raise EnvError(f"{', '.join(strangers)} joined the episode, but no policy plays them")
                missing = [agent for agent in active if agent not in self._actions]
                if any(agent not in self._left for agent in missing):
                    break
                actions = {agent: self._actions.get(agent, "") for agent in active}
                self._actions = {}
                await self._call("step", self.ledger.step, actions)
            else:
                raise EnvError(f"the episode continued for {MAX_MOVES} moves of agents that had left")
        except (Exception, SystemExit) as error:
            self._failure = error
        self._changed.notify_all()

    async def _call(self, name: str, method: Any, *args: Any) -> None:
        if not self.env.blocking:
            inline_calls.time(self.env, functools.partial(method, *args))
            return
        call = ThreadCall(functools.partial(method, *args))
        try:
            _, error = await call.outcome(self._timeout)
        except Overdue:
            raise EnvError(f"{name}() did not return within {self._timeout:g} s") from None
        if error is not None:
            raise error


class _Seat(Env):
    """One agent's view of the table, for `run_episode`."""

    def __init__(self, table: _Table, agent: str) -> None:
        self._table = table
        self._agent = agent
        self.spec = table.env.spec
        self.format_error_reward = table.env.format_error_reward
        self.shows_images = table.env.shows_images

    async def areset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        self.begin_episode(None)
        failure = self._table.failed()
        if failure is not None:
            raise failure
        self.random.seed(self._table.stream_of(self._agent))
        observation, _, _, _, info = self._table.ledger.collect(self._agent)
        return observation, info

    async def astep(self, action: str) -> StepResult:
        return await self._table.act(self._agent, action)

    def sample_random_action(self) -> str:
        return self._table.env.random_action(self._agent, self.action_random)

    def oracle_action(self) -> str | None:
        return self._table.env.best_action(self._agent, self.action_random)

    @property
    def call_readers(self) -> Sequence[Any]:
        return self._table.env.readers_of(self._agent)

    # No close(): `run_agents` closes the environment once, for all agents.


class _TimeLimited:
    """A policy that returns an empty response if the wrapped policy takes too long."""

    def __init__(self, policy: Any, timeout: float) -> None:
        self._policy = policy
        self._timeout = timeout
        self.takes_images = getattr(policy, "takes_images", False)
        if hasattr(policy, "generate"):
            self.generate = self._generate
        else:
            self.reply = self._reply
        if hasattr(policy, "forget_request"):
            self.forget_request = policy.forget_request

    async def _generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, **shown: Any
    ) -> Generation:
        answer = self._policy.generate(prompt_ids, max_tokens=max_tokens, request_id=request_id, **shown)
        try:
            generation: Generation = await within(self._timeout, answer)
        except Overdue:
            return Generation([], None, "length")
        return generation

    async def _reply(
        self, messages: list[Message], *, max_tokens: int, request_id: str, **offered: Any
    ) -> ChatReply:
        answer = self._policy.reply(messages, max_tokens=max_tokens, request_id=request_id, **offered)
        try:
            reply: ChatReply = await within(self._timeout, answer)
        except Overdue:
            return ChatReply("", notes={"timeout": self._timeout})
        return reply
