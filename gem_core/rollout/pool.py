"""Environments kept from one episode to the next."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from gem_core.core import Env
from gem_core.envs.multiagent.multi_agent_env import MultiAgentEnv
from gem_core.errors import ConfigError, EnvError
from gem_core.registration import WrapperLike, wrap
from gem_core.rollout.agents import AnyContext, AnyPolicy, run_agents
from gem_core.rollout.calls import build_env, close_all, jsonable, start_closing
from gem_core.rollout.runner import require_images, run_episode
from gem_core.rollout.trajectory import Episode
from gem_core.tasks import EnvChoice, TaskRow, reset_arguments

logger = logging.getLogger(__name__)

OnEnvError: TypeAlias = Literal["mask", "retry"]

MAX_IDLE = 32
"""Environments that a pool keeps for later, or as many as it ever played at the same time."""

MAX_ENV_RETRIES = 2
"""Default of how often an episode whose environment failed is played again."""


class EnvPool:
    """Plays task rows, reusing the environments of episodes that ended well.

    Of the environments that no episode is using it keeps `MAX_IDLE`, or as many as episodes were ever
    played at the same time where that is more; beyond that it closes those whose kind (id and
    arguments) was played longest ago.

    Environments are built and closed in threads, so that neither holds up the event loop; only `prepare`
    builds where it is called. The first environment of a kind is built alone: what it imports and loads
    is there for the others. Resources that belong to one thread are made in `Env.reset`, not in the
    constructor.

    Use a pool from one event loop at a time.

    Args:
        wrappers: Put around every environment, as in `gem_core.make`.
    """

    def __init__(self, wrappers: WrapperLike | Sequence[WrapperLike] = ()) -> None:
        self._wrappers = wrappers
        self._idle: dict[str, list[Env]] = {}  # by kind; the one played last stands last, none is empty
        self._playing = self._most_playing = 0
        self._tried: dict[str, asyncio.Event | None] = {}  # kinds; an event until the first build is over
        self._unbuilt: dict[str, list[EnvError]] = {}  # by kind; failures of `reserve`
        self._closing: dict[Future[None], Env] = {}

    def prepare(self, source: EnvChoice, contexts: Iterable[AnyContext] = ()) -> list[str]:
        """Build one environment of `source` now, so that a wrong id or argument shows.

        Args:
            source: What will be played.
            contexts: What it will be played with, where that is known.

        Returns:
            Its agents that `play_all` makes an episode of; none when it has one agent alone.

        Raises:
            GemError: As `EnvChoice.make`.
            ConfigError: It shows images, and the context takes text only.
        """
        env = self._make(source)
        self._tried[source.label] = None
        self._idle.setdefault(source.label, []).append(env)
        for context in contexts:
            require_images(env, None, context)
        return env.possible_agents if isinstance(env, MultiAgentEnv) else []

    async def reserve(self, tasks: Iterable[TaskRow], step_timeout: float | None = None) -> None:
        """Build what is missing to play these tasks at the same time, and wait for all of it.

        Otherwise each task builds its own environment when it is played, and the order in which the
        threads finish decides which episodes meet in a batch of the policy. Sums of floating-point numbers
        depend on that, so a run that has to be repeatable to the last bit reserves first.

        Args:
            tasks: Those that will be played at the same time.
            step_timeout: Seconds that a constructor may take; None waits. One that fails here is the
                failure of a task when that is played.
        """
        sources = [EnvChoice(task["env_id"], task["env_kwargs"]) for task in tasks]
        missing = []
        there = {kind: len(envs) for kind, envs in self._idle.items()}
        for source in sources:
            there[source.label] = there.get(source.label, 0) - 1
            if there[source.label] < 0:
                missing.append(source)

        async def build(source: EnvChoice) -> None:
            try:
                env = await self._build(source, step_timeout)
            except EnvError as error:
                self._unbuilt.setdefault(source.label, []).append(error)
            else:
                self._idle.setdefault(source.label, []).append(env)

        await asyncio.gather(*map(build, missing))

    async def play(
        self,
        task: TaskRow,
        policy: AnyPolicy,
        context: AnyContext,
        *,
        on_env_error: OnEnvError = "mask",
        max_env_retries: int = MAX_ENV_RETRIES,
        **limits: Any,
    ) -> Episode:
        """Play the episode of a task row; see `play_all`.

        If the task names an item, so does ``Episode.metadata["item"]``.

        Raises:
            ConfigError: The environment has several agents; or as `play_all`.
            PolicyError: As `run_episode`.
        """
        (episode,) = await self.play_all(
            task,
            policy,
            context,
            one_agent=True,
            on_env_error=on_env_error,
            max_env_retries=max_env_retries,
            **limits,
        )
        return episode

    async def play_all(
        self,
        task: TaskRow,
        policy: AnyPolicy,
        context: AnyContext,
        *,
        others: Mapping[str, tuple[AnyPolicy, AnyContext]] = MappingProxyType({}),
        one_agent: bool = False,
        on_env_error: OnEnvError = "mask",
        max_env_retries: int = MAX_ENV_RETRIES,
        **limits: Any,
    ) -> list[Episode]:
        """Play a task row and return an episode for each agent.

        An environment that fails never raises here, whatever it does and whenever: a constructor, reset
        or step that raises, returns nonsense or takes longer than `step_timeout` makes an episode with
        ``stop_reason="env_error"`` that is not trainable and whose `error` says what failed. After a
        failed constructor it has no turns, and stands for all agents. A close that fails is logged.

        Args:
            task: What to play.
            policy: Plays every agent that has none of its own.
            context: Of `policy`.
            others: Policy and context of agents that have their own.
            one_agent: An environment with several agents is refused.
            on_env_error: What becomes of an episode whose environment failed. "mask" returns it.
                "retry" plays it again with the same seed and a fresh environment; `Episode.env_retries`
                counts the attempts that failed before.
            max_env_retries: Most attempts after the first one; the last one is returned as it is.
            **limits: More arguments of `run_episode`. Its `step_timeout` also holds for the
                constructor; None waits for as long as that takes.

        Raises:
            ConfigError: There are several agents, though `one_agent` says otherwise; an option is out of
                range; or `on_turn` comes with "retry", because turns that were reported cannot be taken
                back.
            PolicyError: As `run_episode`; whatever else the policy raises is passed on, too.
        """
        check_env_retries(on_env_error, max_env_retries)
        if task.get("item") is not None:
            limits["metadata"] = {**(limits.get("metadata") or {}), "item": task["item"]}
        retries = max_env_retries if on_env_error == "retry" else 0
        if retries and limits.get("on_turn") is not None:
            raise ConfigError(
                "on_env_error='retry' plays an episode again, but on_turn has reported its turns by then; "
                "use on_env_error='mask' or leave out on_turn"
            )
        self._playing += 1
        self._most_playing = max(self._most_playing, self._playing)
        try:
            for attempt in range(retries + 1):
                episodes = await self._attempt(
                    task, policy, context, others, one_agent, dict(limits), fresh=attempt > 0
                )
                for episode in episodes:
                    episode.env_retries = attempt
                if all(episode.stop_reason != "env_error" for episode in episodes):
                    break
        finally:
            self._playing -= 1
        return episodes

    async def _attempt(
        self,
        task: TaskRow,
        policy: AnyPolicy,
        context: AnyContext,
        others: Mapping[str, tuple[AnyPolicy, AnyContext]],
        one_agent: bool,
        limits: dict[str, Any],
        *,
        fresh: bool,
    ) -> list[Episode]:
        source = EnvChoice(task["env_id"], task["env_kwargs"])
        step_timeout = limits.get("step_timeout")
        try:
            env = None if fresh else self._take(source.label)
            if env is None:
                env = await self._build(source, step_timeout)
        except EnvError as error:
            return [_unbuilt(task, context, str(error), limits)]
        if isinstance(env, MultiAgentEnv) and not one_agent:
            limits["wrappers"] = self._wrappers
            players = {agent: others.get(agent, (policy, context)) for agent in env.possible_agents}
            policies = {agent: player[0] for agent, player in players.items()}
            contexts = {agent: player[1] for agent, player in players.items()}
            agents = await run_agents(env, policies, contexts, **reset_arguments(task), **limits)
            episodes = list(agents.values())
        else:
            episodes = [await run_episode(env, policy, context, **reset_arguments(task), **limits)]
        if all(episode.stop_reason != "env_error" for episode in episodes):  # else it has been closed
            self._keep(source.label, env)
        return episodes

    async def _build(self, source: EnvChoice, timeout: float | None) -> Env:
        """A new environment, built in a thread; the first one of a kind alone.

        Raises:
            EnvError: The constructor failed.
        """
        kind = source.label
        build = functools.partial(self._make, source)
        if kind in self._tried:
            first = self._tried[kind]
            if first is not None:
                await first.wait()
            return await build_env(build, timeout)
        over = self._tried[kind] = asyncio.Event()
        try:
            return await build_env(build, timeout)
        finally:
            self._tried[kind] = None
            over.set()

    def _take(self, kind: str) -> Env | None:
        """An idle environment of that kind.

        Raises:
            EnvError: There is none, because building it failed in `reserve`.
        """
        envs = self._idle.pop(kind, [])
        if not envs and self._unbuilt.get(kind):
            raise self._unbuilt[kind].pop()
        env = envs.pop() if envs else None
        if envs:
            self._idle[kind] = envs
        return env

    def _keep(self, kind: str, env: Env) -> None:
        """Keep an environment for later, and close what is too many, without waiting for it."""
        envs = self._idle.pop(kind, [])
        envs.append(env)
        self._idle[kind] = envs
        count = sum(map(len, self._idle.values()))
        for _ in range(count - max(MAX_IDLE, self._most_playing)):
            oldest, unused = next(iter(self._idle.items()))
            too_many = unused.pop(0)
            if not unused:
                del self._idle[oldest]
            closing = start_closing(too_many)
            self._closing[closing] = too_many
            closing.add_done_callback(lambda done: self._closing.pop(done, None))

    def _make(self, source: EnvChoice) -> Env:
        env = source.make()
        # With several agents the wrappers go around each one's view.
        return env if env.multi_agent else wrap(env, self._wrappers)

    def close(self) -> None:
        """Close the environments that no episode is using; one that does not return is left behind."""
        envs = [env for kind in self._idle.values() for env in kind]
        self._idle.clear()
        close_all(envs, closing=dict(self._closing))


def check_env_retries(on_env_error: str, max_env_retries: int, prefix: str = "") -> None:
    """Refuse values that `EnvPool.play` cannot use.

    Args:
        on_env_error: As in `EnvPool.play_all`.
        max_env_retries: As in `EnvPool.play_all`.
        prefix: What a user writes before the name of an option, for messages.

    Raises:
        ConfigError: One of them is out of range.
    """
    if on_env_error not in ("mask", "retry"):
        raise ConfigError(f"{prefix}on_env_error={on_env_error!r}: expected 'mask' or 'retry'")
    whole = isinstance(max_env_retries, int) and not isinstance(max_env_retries, bool)
    if not whole or max_env_retries < 1:
        raise ConfigError(
            f"{prefix}max_env_retries={max_env_retries!r}: expected a whole number of at least 1; "
            f"{prefix}on_env_error='mask' plays nothing again"
        )


def _unbuilt(task: TaskRow, context: AnyContext, error: str, limits: Mapping[str, Any]) -> Episode:
    """The episode of a task whose environment could not be built."""
    if limits.get("log_errors", True):
        logger.warning("episode of %s, seed %s: %s", task["env_id"], task["seed"], error)
    return Episode(
        env_id=task["env_id"],
        seed=task["seed"],
        turns=[],
        terminated=False,
        truncated=True,
        stop_reason="env_error",
        error=error,
        trainable=False,
        context_mode=context.mode,
        env_kwargs=jsonable(task["env_kwargs"]),
        metadata=jsonable(limits.get("metadata") or {}),
    )
