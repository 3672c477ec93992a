"""Calls into an environment for async callers: built, reset, stepped and closed without holding up the loop.

Whatever goes wrong inside an environment comes out as an `EnvError`, which `run_episode` and `EnvPool`
turn into a failed episode.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import numbers
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from types import MappingProxyType
from typing import Any, NamedTuple

from gem_core._util.messages import error_line
from gem_core._util.threads import MAX_THREADS, CallOutcome, Overdue, ThreadCall
from gem_core.core import Env, Observation, ResetOptions
from gem_core.errors import EnvError
from gem_core.images import check_parts
from gem_core.observations import encodable, encodable_observation, render_observation
from gem_core.wrapper import Wrapper

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT = 30.0
"""Seconds that a close may take where no `step_timeout` says otherwise."""

SLOW_CALL = 0.05
"""Seconds from which on a call that runs on the event loop counts as slow."""


class StepResult(NamedTuple):
    """What a step returned, checked."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    """Reduced to what JSON has."""


async def build_env(build: Callable[[], Env], timeout: float | None) -> Env:
    """Call a constructor in one of the shared threads.

    Args:
        build: Returns the environment.
        timeout: Seconds that it may take, from the moment that a thread takes it up; None waits. An
            environment that arrives later is closed.

    Raises:
        EnvError: The constructor raised, or took too long.
    """
    call = ThreadCall(build)
    try:
        env, error = await call.outcome(timeout)
    except Overdue as overdue:
        call.future.add_done_callback(_close_late)
        raise EnvError(f"constructor failed: it did not return within {timeout:g} s") from overdue
    except BaseException:  # nobody waits for the environment any more
        call.future.add_done_callback(_close_late)
        raise
    if error is not None:
        raise EnvError(f"constructor failed: {error_line(error)}") from error
    assert env is not None
    return env


def _close_late(building: Future[Any]) -> None:
    if not building.cancelled() and building.exception() is None:
        env, error = building.result()
        if error is None:
            start_closing(env)


def start_closing(env: Env) -> Future[None]:
    """Close an environment in a thread of its own; a failure is logged.

    The thread is not one of the shared ones, which a close that never returns would use up, and does
    not keep the interpreter from exiting.

    Returns:
        Done once the environment is closed, whether or not that went well.
    """
    closed: Future[None] = Future()

    def close() -> None:
        try:
            env.close()
        except (Exception, SystemExit):  # too late for any episode
            logger.warning("closing %r failed", env, exc_info=True)
        finally:
            closed.set_result(None)

    threading.Thread(target=close, name="gem-env-close", daemon=True).start()
    return closed


async def close_env(env: Env, timeout: float | None = None, running: Future[Any] | None = None) -> None:
    """Close an environment off the event loop; a failure or a close that hangs is logged, not raised.

    Args:
        env: Whatever happens to the caller, its close is called.
        timeout: Seconds to wait for it; None waits `CLOSE_TIMEOUT`.
        running: The last call into it. Where it still runs in a thread, the environment is closed when
            it returns, and nobody waits for that.
    """
    if running is not None and not running.done():
        running.add_done_callback(lambda _: start_closing(env))
        return
    limit = CLOSE_TIMEOUT if timeout is None else timeout
    closed = asyncio.wrap_future(start_closing(env))
    if not (await asyncio.wait({closed}, timeout=limit))[0]:
        _log_hung(env, limit)


def close_now(env: Env, timeout: float | None = None, running: Future[Any] | None = None) -> None:
    """`close_env` where nothing can be awaited: the event loop is stopped, or has to stop."""
    if running is not None and not running.done():
        running.add_done_callback(lambda _: start_closing(env))
    else:
        close_all([env], CLOSE_TIMEOUT if timeout is None else timeout)


def close_all(
    envs: Sequence[Env],
    timeout: float = CLOSE_TIMEOUT,
    closing: Mapping[Future[None], Env] = MappingProxyType({}),
) -> None:
    """Close environments side by side, `MAX_THREADS` at a time, without an event loop.

    Args:
        envs: Each is closed, or at least told to.
        timeout: Seconds that each may take.
        closing: Others whose close has begun, by what `start_closing` returned.
    """
    for first in range(0, max(1, len(envs)), MAX_THREADS):
        running = {start_closing(env): env for env in envs[first : first + MAX_THREADS]} | dict(closing)
        closing = {}
        for hung in wait(running, timeout=timeout).not_done:
            _log_hung(running[hung], timeout)


def _log_hung(env: Env, seconds: float) -> None:
    logger.warning("closing %r has not returned within %g s; nobody waits for it any longer", env, seconds)


class EnvCalls:
    """Resets, steps and closes one environment.

    Args:
        env: A blocking one runs in a thread, one with `areset` or `astep` of its own on the event
            loop, any other inline.
        executor: Runs the calls of a blocking environment; None takes the shared threads.
        timeout: Seconds that a call in a thread or an async call may take; None waits.
    """

    def __init__(self, env: Env, executor: Executor | None, timeout: float | None) -> None:
        self._env = env
        self._executor = executor
        self._timeout = timeout
        self._async_form = _has_async_form(env)
        self._running: Future[Any] | None = None

    async def reset(self, seed: int | None, options: ResetOptions | None) -> Observation:
        """The first observation as the model is shown it."""
        value = await self._call("reset", seed, options=options)
        try:
            observation, info = value
            return _shown(observation, info)
        except Exception as error:
            raise EnvError(f"reset() must return (observation, info): {error_line(error)}") from error

    async def step(self, action: str) -> StepResult:
        """What a step returned, checked; the observation as the model is shown it."""
        value = await self._call("step", action)
        try:
            observation, reward, terminated, truncated, info = value
            observation = _shown(observation, info)
            if not isinstance(reward, numbers.Real):
                raise TypeError(f"the reward is a {type(reward).__name__}")
            kept: dict[str, Any] = jsonable(info)
            ends = bool(terminated), bool(truncated)
        except Exception as error:
            raise EnvError(
                f"step() must return (observation, reward, terminated, truncated, info): {error_line(error)}"
            ) from error
        if not math.isfinite(reward):
            raise EnvError(f"step() returned the reward {reward}; a reward must be finite")
        if all(ends):
            raise EnvError("step() returned terminated and truncated; an episode ends in one way only")
        return StepResult(observation, float(reward), *ends, kept)

    async def close(self) -> None:
        """Close the environment; where a call is still running in a thread, as soon as it returns."""
        await close_env(self._env, self._timeout, self._running)

    def close_now(self) -> None:
        """The same where nothing can be awaited."""
        close_now(self._env, self._timeout, self._running)

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        error: Exception | SystemExit | None
        try:
            method = getattr(self._env, f"a{name}" if self._async_form else name)
            if self._async_form:
                value, error = await _outcome(method(*args, **kwargs), self._timeout)
            elif not self._env.blocking:
                return inline_calls.time(self._env, functools.partial(method, *args, **kwargs))
            else:
                call = ThreadCall(functools.partial(method, *args, **kwargs), self._executor)
                self._running = call.future
                value, error = await call.outcome(self._timeout)
        except Overdue as overdue:
            raise EnvError(f"{name}() gave no answer within {self._timeout:g} s") from overdue
        except (Exception, SystemExit) as failure:
            error = failure
        if error is None:
            return value
        raise EnvError(f"{name}() failed: {error_line(error)}") from error


class InlineCalls:
    """Times the calls that run on the event loop, and warns once about each environment id that is slow.

    An id is slow when at least `LEAST` of its calls, and at least `SHARE` of all of them, took
    `SLOW_CALL` seconds or longer. It is the wall time that counts, because a call that sleeps holds up
    the loop, too; on a busy machine a single call of a fast environment may well take that long, which
    is why one is not enough.

    Args:
        clock: Seconds from any starting point.
    """

    LEAST = 3
    SHARE = 0.05

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[int, int]] = {}  # calls and slow calls by id
        self._warned: set[str] = set()

    def time(self, env: Env, call: Callable[[], Any]) -> Any:
        """Make the call and return its result."""
        began = self._clock()
        try:
            return call()
        finally:
            self._count(env, self._clock() - began)

    def _count(self, env: Env, seconds: float) -> None:
        name = env.spec.id if env.spec else type(env).__name__
        if name in self._warned:
            return
        calls, slow = self._counts.get(name, (0, 0))
        calls, slow = calls + 1, slow + (seconds >= SLOW_CALL)
        self._counts[name] = calls, slow
        if slow >= self.LEAST and slow >= self.SHARE * calls:
            self._warned.add(name)
            logger.warning(
                "%s: %d of %d resets and steps took %g ms or longer on the event loop, where they hold up "
                "every other episode and the engine; set `blocking = True` on the environment class "
                '(`blocking = "cpu"` where Python code keeps a core busy), and they run in threads',
                name, slow, calls, SLOW_CALL * 1000,
            )  # fmt: skip


inline_calls = InlineCalls()
"""Of this process."""


async def _outcome(answer: Awaitable[Any], timeout: float | None) -> CallOutcome[Any]:
    """Result or exception as a value, so that a `TimeoutError` of the environment is its own."""

    async def outcome() -> CallOutcome[Any]:
        try:
            return await answer, None
        except (Exception, SystemExit) as error:
            return None, error

    try:
        return await asyncio.wait_for(outcome(), timeout)
    except asyncio.TimeoutError:
        raise Overdue from None


def _has_async_form(env: Env) -> bool:
    """Whether the environment or one of its wrappers has an `areset` or `astep` of its own."""
    while True:
        kind = type(env)
        if kind.areset not in _DEFAULT_ASYNC or kind.astep not in _DEFAULT_ASYNC:
            return True
        if not isinstance(env, Wrapper):
            return False
        env = env.env


_DEFAULT_ASYNC = (Env.areset, Env.astep, Wrapper.areset, Wrapper.astep)


def _shown(observation: Any, info: Any) -> Observation:
    if not isinstance(observation, str | list):
        raise TypeError(f"the observation is a {type(observation).__name__}, not a str or a list of parts")
    if isinstance(observation, list):
        check_parts(observation)
    if not isinstance(info, Mapping):
        raise TypeError(f"info is a {type(info).__name__}, not a dict")
    return encodable_observation(render_observation(observation, info))


def jsonable(value: Any) -> Any:
    """`value` reduced to what JSON has.

    Numpy scalars and arrays become numbers and lists, other containers lists, floats that are not
    finite None, other objects their `repr`. Lone surrogates become U+FFFD.
    """
    if isinstance(value, str):
        return encodable(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {encodable(str(key)): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    return repr(value)
