"""`EnvPool`: reuses environments across episodes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gem_core._core import Env
from gem_core._registration import WrapperLike, wrap
from gem_core._tasks import EnvChoice, TaskRow, reset_arguments
from gem_core._util.checks import check_int
from gem_core.errors import ConfigError, EnvError
from gem_core.multiagent._multi_agent_env import MultiAgentEnv
from gem_core.rollout._agents import AnyPolicy, run_agents
from gem_core.rollout._calls import build_env, close_all, close_env, jsonable, start_closing
from gem_core.rollout._dialogue import Context
from gem_core.rollout._harness import runners
from gem_core.rollout._limits import EpisodeLimits
from gem_core.rollout._runner import DEFAULT_LIMITS, EpisodeArguments, run_episode
from gem_core.rollout._trajectory import Episode

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

MAX_IDLE = 32
"""Maximum number of idle environments in a pool, unless its peak number of concurrent episodes is larger."""


class EnvPool:
    """Plays task rows and reuses the environments of episodes that did not fail.

    The pool keeps up to `MAX_IDLE` idle environments, or up to its peak number of concurrent episodes if that
    is larger; with `max_envs`, up to that number minus the environments in use. It closes surplus
    environments, starting with the least recently played kind. A kind is an id with its arguments.

    Environments are built and closed in threads, so neither blocks the event loop; only `prepare` builds in
    the calling thread. The first environment of a kind is built alone, so that the others find its imports
    and data already loaded. An environment must create resources that belong to one thread in `Env.reset`,
    not in its constructor.

    Use a pool from one event loop at a time.

    Args:
        wrappers: Wrappers around every environment, as in `gem_core.make`.
        max_envs: Maximum number of environments that exist at the same time, idle ones included; further
            episodes wait. None for no limit. An environment that is being closed does not count.

    Raises:
        ConfigError: `max_envs` is less than 1.
    """

    def __init__(
        self, wrappers: WrapperLike | Sequence[WrapperLike] = (), *, max_envs: int | None = None
    ) -> None:
        check_int("max_envs", max_envs, 1, optional=True)
        self._wrappers = wrappers
        self._max_envs = max_envs
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._idle: dict[str, list[Env]] = {}  # by kind, most recently played last; no list is empty
        self._playing = self._most_playing = 0
        self._tried: dict[str, asyncio.Event | None] = {}  # by kind; an event until the first build is over
        self._unbuilt: dict[str, list[EnvError]] = {}  # by kind; failures of `reserve`
        self._closing: dict[Future[None], object] = {}  # also those that are still being built

    def prepare(self, source: EnvChoice, contexts: Iterable[Context] = ()) -> list[str]:
        """Build one environment of `source` now, to report a wrong id or argument early.

        Args:
            source: The environment that will be played.
            contexts: The contexts it will be played with, if they are known.

        Returns:
            The agents for which `play_all` returns an episode each; an empty list for a single-agent
            environment.

        Raises:
            GemError: As in `EnvChoice.make`.
            ConfigError: The environment shows images, but a context takes text only.
        """
        env = self._make(source)
        self._tried[source.call] = None
        self._idle.setdefault(source.call, []).append(env)
        for context in contexts:
            context.require_images(env, None)
        return env.possible_agents if isinstance(env, MultiAgentEnv) else []

    async def reserve(self, tasks: Iterable[TaskRow], step_timeout: float | None = None) -> None:
        """Build the environments that are missing to play these tasks at the same time, and wait for them.

        Without this call each task builds its own environment when it is played, and the order in which the
        threads finish decides which episodes share a batch of the policy. Floating-point sums depend on the
        batch, so a run that must be reproducible bit for bit calls `reserve` first.

        Args:
            tasks: Tasks that will be played at the same time.
            step_timeout: Maximum number of seconds for a constructor; None means no limit. If a constructor
                fails, `play_all` later returns a failed episode for a task with that environment.
        """
        sources = [EnvChoice.of(task) for task in tasks][: self._max_envs]
        missing = []
        idle = {kind: len(envs) for kind, envs in self._idle.items()}
        for source in sources:
            idle[source.call] = idle.get(source.call, 0) - 1
            if idle[source.call] < 0:
                missing.append(source)

        async def build(source: EnvChoice) -> None:
            try:
                env = await self._build(source, step_timeout)
            except EnvError as error:
                self._unbuilt.setdefault(source.call, []).append(error)
            else:
                self._idle.setdefault(source.call, []).append(env)

        await asyncio.gather(*map(build, missing))

    async def play(
        self,
        task: TaskRow,
        policy: AnyPolicy,
        context: Context,
        limits: EpisodeLimits = DEFAULT_LIMITS,
        **arguments: Unpack[EpisodeArguments],
    ) -> Episode:
        """Play a task row and return its episode; see `play_all`.

        If the task names an item, ``Episode.metadata["item"]`` holds it.

        Raises:
            ConfigError: The environment has several agents; or as in `play_all`.
            PolicyError: As in `run_episode`.
        """
        (episode,) = await self.play_all(task, policy, context, limits, one_agent=True, **arguments)
        return episode

    async def play_all(
        self,
        task: TaskRow,
        policy: AnyPolicy,
        context: Context,
        limits: EpisodeLimits = DEFAULT_LIMITS,
        *,
        others: Mapping[str, tuple[AnyPolicy, Context]] = MappingProxyType({}),
        one_agent: bool = False,
        **arguments: Unpack[EpisodeArguments],
    ) -> list[Episode]:
        """Play a task row and return an episode for each agent.

        A failure of the environment never raises here. If a constructor, reset, or step raises, returns
        malformed values, or takes longer than `EpisodeLimits.step_timeout`, the episode has
        ``stop_reason="env_error"``, is not trainable, and says in `error` what failed. A failed constructor
        gives a single episode without turns for all agents. A failed close is logged.

        Args:
            task: The task to play.
            policy: Policy of every agent that is not in `others`.
            context: Context of `policy`.
            limits: Limits of the episode. `Episode.env_retries` counts the failed attempts before it.
            others: Policy and context by agent.
            one_agent: Whether to reject an environment with several agents.
            arguments: Further arguments of `run_episode`.

        Raises:
            ConfigError: The environment has several agents despite `one_agent`; an option is out of
                range; or `on_turn` is combined with "retry", which would play turns again that were
                already reported.
            PolicyError: As in `run_episode`. Other exceptions of the policy also propagate.
        """
        limits.check_limits()
        if task.get("item") is not None:
            arguments["metadata"] = {**(arguments.get("metadata") or {}), "item": task["item"]}
        retries = limits.max_env_retries if limits.on_env_error == "retry" else 0
        if retries and arguments.get("on_turn") is not None:
            raise ConfigError(
                "on_env_error='retry' plays an episode again, so on_turn would report turns twice; use "
                "on_env_error='mask' or omit on_turn"
            )
        async with self._semaphore() or contextlib.nullcontext():  # until one more environment may exist
            self._playing += 1
            self._most_playing = max(self._most_playing, self._playing)
            try:
                for attempt in range(retries + 1):
                    episodes = await self._attempt(
                        task, policy, context, limits, others, one_agent, arguments, fresh=attempt > 0
                    )
                    for episode in episodes:
                        episode.env_retries = attempt
                    if all(episode.stop_reason != "env_error" for episode in episodes):
                        break
            finally:
                self._playing -= 1
        return episodes

    def _semaphore(self) -> asyncio.Semaphore | None:
        """Return the semaphore of the running event loop, to which it belongs; None without a limit."""
        loop = asyncio.get_running_loop()
        if self._max_envs is not None and (self._slots is None or self._slots[0] is not loop):
            self._slots = loop, asyncio.Semaphore(self._max_envs)
        return self._slots and self._slots[1]

    async def _attempt(
        self,
        task: TaskRow,
        policy: AnyPolicy,
        context: Context,
        limits: EpisodeLimits,
        others: Mapping[str, tuple[AnyPolicy, Context]],
        one_agent: bool,
        arguments: EpisodeArguments,
        *,
        fresh: bool,
    ) -> list[Episode]:
        source, how = EnvChoice.of(task), reset_arguments(task)
        try:
            env = None if fresh else self._take(source.call)
            if env is None:
                self._trim(self._playing)
                env = await self._build(source, limits.step_timeout)
        except EnvError as error:
            return [_unbuilt(task, context, str(error), arguments)]
        playing: Coroutine[Any, Any, Episode | dict[str, Episode]]
        try:  # a coroutine that has begun closes the environment itself if it raises
            if isinstance(env, MultiAgentEnv) and not one_agent:
                players = {agent: others.get(agent, (policy, context)) for agent in env.possible_agents}
                policies = {agent: player[0] for agent, player in players.items()}
                contexts = {agent: player[1] for agent, player in players.items()}
                playing = run_agents(
                    env, policies, contexts, limits, wrappers=self._wrappers, **how, **arguments
                )
            elif limits.harness is None:
                playing = run_episode(env, policy, context, limits, **how, **arguments)
            else:
                run_harness = runners.get("run_harness")
                playing = run_harness(limits.harness, env, policy, context, limits, **how, **arguments)
        except BaseException:  # such as an argument that does not exist
            await close_env(env, limits.step_timeout)
            raise
        played = await playing
        episodes = [played] if isinstance(played, Episode) else list(played.values())
        if all(episode.stop_reason != "env_error" for episode in episodes):  # otherwise env is closed already
            self._keep(source.call, env)
        return episodes

    async def _build(self, source: EnvChoice, timeout: float | None) -> Env:
        """Build an environment in a thread; the first one of a kind is built alone.

        Raises:
            EnvError: The constructor failed.
        """
        kind = source.call
        make = functools.partial(self._make, source)
        build = functools.partial(build_env, source.env_id, make, timeout, self._note_closing)
        if kind in self._tried:
            if (first := self._tried[kind]) is not None:
                await first.wait()
            return await build()
        over = self._tried[kind] = asyncio.Event()
        try:
            return await build()
        finally:
            self._tried[kind] = None
            over.set()

    def _take(self, kind: str) -> Env | None:
        """Return an idle environment of that kind, or None if there is none.

        Raises:
            EnvError: There is none because `reserve` failed to build it.
        """
        envs = self._idle.pop(kind, [])
        if not envs and self._unbuilt.get(kind):
            raise self._unbuilt[kind].pop()
        env = envs.pop() if envs else None
        if envs:
            self._idle[kind] = envs
        return env

    def _keep(self, kind: str, env: Env) -> None:
        """Keep an idle environment, and start closing those that exceed the limit."""
        env.rest()
        envs = self._idle[kind] = self._idle.pop(kind, [])  # the last one now
        envs.append(env)
        self._trim(self._playing - 1)

    def _trim(self, in_use: int) -> None:
        """Start closing idle environments beyond the limit, starting with the least recently played kind."""
        limit = max(MAX_IDLE, self._most_playing) if self._max_envs is None else self._max_envs - in_use
        for _ in range(sum(map(len, self._idle.values())) - limit):
            oldest, unused = next(iter(self._idle.items()))
            too_many = unused.pop(0)
            if not unused:
                del self._idle[oldest]
            self._note_closing(start_closing(too_many), too_many)

    def _note_closing(self, closed: Future[None], env: object) -> None:
        self._closing[closed] = env
        closed.add_done_callback(lambda done: self._closing.pop(done, None))

    def _make(self, source: EnvChoice) -> Env:
        env = source.make()
        # With several agents, the wrappers go around the view of each agent.
        try:
            return env if env.multi_agent else wrap(env, self._wrappers)
        except BaseException:  # such as a tool whose server does not answer
            env.close()
            raise

    def close(self) -> None:
        """Close the idle environments, and those that canceled episodes were building.

        After a time limit, stop waiting for those whose close hangs.
        """
        envs = [env for kind in self._idle.values() for env in kind]
        self._idle.clear()
        close_all(envs, closing=dict(self._closing))


def _unbuilt(task: TaskRow, context: Context, error: str, arguments: EpisodeArguments) -> Episode:
    """Return the failed episode of a task whose environment could not be built."""
    if arguments.get("log_errors", True):
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
        metadata=jsonable(arguments.get("metadata") or {}),
    )
