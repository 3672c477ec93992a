"""Calls that build, reset, step, and close environments without blocking the event loop.

Every failure inside an environment is raised as an `EnvError`, which `run_episode` and `EnvPool` turn into a
failed episode.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import numbers
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from gem_core._core import Env, Observation, ResetOptions
from gem_core._images import check_parts
from gem_core._observations import encodable, encodable_observation, render_observation
from gem_core._util import threads
from gem_core._util.checks import expected
from gem_core._util.closing import run_aside
from gem_core._util.messages import error_line, error_place
from gem_core._util.owners import after_calls, calls_of, running_call
from gem_core._util.threads import MAX_THREADS, CallOutcome, ThreadCall
from gem_core._util.waiting import Overdue, within
from gem_core._wrapper import Wrapper
from gem_core.errors import EnvError
from gem_core.rollout._first_errors import first_errors

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT = 30.0
"""Time limit in seconds for a close if there is no `step_timeout`."""

_CALLERS = (__file__, str(threads.__file__))

_Canceled: TypeAlias = Callable[[Future[None], str], object]

SLOW_CALL = 0.05
"""A call on the event loop counts as slow if it takes at least this many seconds."""


class CheckedStep(NamedTuple):
    """The checked result of a step."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    """Info dict, reduced to values that JSON can represent."""


async def build_env(name: str, build: Callable[[], Env], timeout: float | None, canceled: _Canceled) -> Env:
    """Call a constructor in one of the shared threads.

    Args:
        name: Id of the environment.
        build: Function that returns the environment.
        timeout: Maximum number of seconds, from the moment that a thread starts the call; None means no
            limit. An environment that is returned later is closed.
        canceled: Called if the caller is canceled, with a future, which is done once the environment is
            closed or is known not to exist, and with the name.

    Raises:
        EnvError: The constructor raised an error or took too long.
    """
    call = ThreadCall(build)
    try:
        env, error = await call.outcome(timeout)
    except BaseException as stopped:
        closed = _close_late(call.future)
        if isinstance(stopped, Overdue):
            raise EnvError(f"constructor failed: it did not return within {timeout:g} s") from stopped
        canceled(closed, name)
        raise
    if error is not None:
        first_errors.log(name, error)
        raise EnvError(f"constructor failed: {error_line(error)}{error_place(error, *_CALLERS)}") from error
    assert env is not None
    return env


def _close_late(building: Future[CallOutcome[Env]]) -> Future[None]:
    closed: Future[None] = Future()

    def close(built: Future[CallOutcome[Env]]) -> None:
        env = None if built.cancelled() or built.exception() else built.result()[0]
        closed.set_result(None) if env is None else start_closing(env, closed)

    building.add_done_callback(close)
    return closed


def start_closing(env: Env, closed: Future[None] | None = None) -> Future[None]:
    """Start closing an environment in a separate daemon thread; a failure is logged.

    If threads still run calls of the environment, abandoned ones included, it is closed when the last of them
    returns. The shared threads are not used, because a close that never returns would block one of them
    forever. While the interpreter exits, no thread can start, so this function closes the environment itself.

    Returns:
        A future that is done once the close has returned or failed; `closed` if it is given.
    """
    done: Future[None] = Future() if closed is None else closed

    def close() -> None:
        try:
            env.close()
        except (Exception, SystemExit):  # too late for any episode
            logger.warning("closing %r failed", env, exc_info=True)
        finally:
            done.set_result(None)

    if sys.is_finalizing():  # an unfinished episode is being destroyed
        close()
    else:
        after_calls(env.unwrapped, lambda: run_aside(close))
    return done


async def close_env(env: Env, timeout: float | None = None) -> None:
    """Close an environment off the event loop; a close that fails or hangs is logged, not raised.

    If a call of the environment is still running in a thread, this function returns at once, and the
    environment is closed when the call returns.

    Args:
        env: The environment. It is closed even if the caller is canceled.
        timeout: Maximum number of seconds to wait; None means `CLOSE_TIMEOUT`.
    """
    in_use = running_call(env.unwrapped) is not None
    closed = asyncio.wrap_future(start_closing(env))
    limit = CLOSE_TIMEOUT if timeout is None else timeout
    if not in_use and not (await asyncio.wait({closed}, timeout=limit))[0]:
        _log_hung(env, limit)


class ClosedOnError:
    """Closes an environment if its ``async with`` block raises or is canceled, in any way and only once.

    Args:
        env: The environment.

    Attributes:
        timeout: Maximum number of seconds to wait for the close; None means `CLOSE_TIMEOUT`.

    Raises:
        ConfigError: `env` is not an environment.
    """

    def __init__(self, env: Env) -> None:
        if not isinstance(env, Env):
            raise expected("env", env, "an environment, as from gem_core.make")
        self._env = env
        self._closed = False
        self.timeout: float | None = None

    async def close(self) -> None:
        """Close the environment as `close_env` does."""
        if not self._closed:
            self._closed = True
            await close_env(self._env, self.timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or self._closed:
            return
        if isinstance(error, Exception | asyncio.CancelledError):
            await self.close()
        else:  # the event loop is stopping, so nothing can be awaited
            self._closed = True
            if running_call(self._env.unwrapped) is not None:
                start_closing(self._env)
            else:
                close_all([self._env], CLOSE_TIMEOUT if self.timeout is None else self.timeout)


def close_all(
    envs: Sequence[Env],
    timeout: float = CLOSE_TIMEOUT,
    closing: Mapping[Future[None], object] = MappingProxyType({}),
) -> None:
    """Close environments concurrently, `MAX_THREADS` at a time, without an event loop.

    Args:
        envs: The environments. A close that hangs is logged.
        timeout: Maximum number of seconds to wait for each batch.
        closing: Further environments that are being closed, by the future from `start_closing`.
    """
    for first in range(0, max(1, len(envs)), MAX_THREADS):
        running = {start_closing(env): env for env in envs[first : first + MAX_THREADS]} | dict(closing)
        closing = {}
        for hung in wait(running, timeout=timeout).not_done:
            _log_hung(running[hung], timeout)


def _log_hung(env: object, seconds: float) -> None:
    logger.warning("closing %r has not returned within %g s; it is abandoned", env, seconds)


class EnvCalls:
    """Resets and steps one environment.

    Args:
        env: The environment. It runs as coroutines on the event loop if it has its own `areset` or `astep`,
            in a thread if it is blocking, and inline otherwise.
        executor: Executor for the calls of a blocking environment; None uses the shared threads.
        timeout: Maximum number of seconds for a call in a thread or an async call; None means no limit.
    """

    def __init__(self, env: Env, executor: Executor | None, timeout: float | None) -> None:
        self._env = env
        self._executor = executor
        self._timeout = timeout
        self._async_form = _has_async_form(env)

    async def reset(self, seed: int | None, options: ResetOptions | None) -> Observation:
        """Reset the environment and return the first observation as the model sees it."""
        value = await (
            self.call("reset", seed) if options is None else self.call("reset", seed, options=options)
        )
        try:
            observation, info = value
            return _shown(observation, info)
        except Exception as error:
            first_errors.log(_name_of(self._env), error)
            raise EnvError(f"reset() must return (observation, info): {error_line(error)}") from error

    async def step(self, action: str) -> CheckedStep:
        """Take a step and return its checked result, with the observation as the model sees it."""
        value = await self.call("step", action)
        try:
            observation, reward, terminated, truncated, info = value
            observation = _shown(observation, info)
            if not isinstance(reward, numbers.Real):
                raise TypeError(f"the reward is a {type(reward).__name__}, not a number")
            json_info: dict[str, Any] = jsonable(info)
            ends = bool(terminated), bool(truncated)
        except Exception as error:
            first_errors.log(_name_of(self._env), error)
            raise EnvError(
                f"step() must return (observation, reward, terminated, truncated, info): {error_line(error)}"
            ) from error
        if not math.isfinite(reward):
            raise EnvError(f"step() returned the reward {reward}: expected a finite number")
        if all(ends):
            raise EnvError("step() returned both terminated and truncated as True")
        return CheckedStep(observation, float(reward), *ends, json_info)

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment, with the time limit, and return its result."""
        error: Exception | SystemExit | None
        try:
            method = getattr(self._env, f"a{name}" if self._async_form else name)
            if self._async_form:
                with calls_of(self._env.unwrapped):
                    value, error = await _outcome(functools.partial(method, *args, **kwargs), self._timeout)
            elif not self._env.blocking:
                return inline_calls.time(self._env, functools.partial(method, *args, **kwargs))
            else:
                with calls_of(self._env.unwrapped):
                    call = ThreadCall(functools.partial(method, *args, **kwargs), self._executor)
                value, error = await call.outcome(self._timeout)
        except Overdue as overdue:
            raise EnvError(f"{name}() did not return within {self._timeout:g} s") from overdue
        except (Exception, SystemExit) as failure:
            error = failure
        if error is None:
            return value
        first_errors.log(_name_of(self._env), error)
        raise EnvError(f"{name}() failed: {error_line(error)}{error_place(error, *_CALLERS)}") from error


def _name_of(env: Env) -> str:
    return env.spec.id if env.spec else type(env).__name__


class InlineCalls:
    """Times the calls that run on the event loop, and warns once about each slow environment id.

    An id is slow if at least `LEAST` of its calls and at least a fraction `SHARE` of them took `SLOW_CALL`
    seconds or longer. Wall time is measured, because a call that sleeps blocks the event loop, too. A single
    slow call causes no warning, because a busy machine can delay a call of a fast environment.

    Args:
        clock: Function that returns seconds from an arbitrary starting point.
    """

    LEAST = 3
    SHARE = 0.05

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[int, int]] = {}  # calls and slow calls by id
        self._warned: set[str] = set()

    def time(self, env: Env, call: Callable[[], Any]) -> Any:
        """Run `call` and return its result."""
        began = self._clock()
        try:
            return call()
        finally:
            self._count(env, self._clock() - began)

    def _count(self, env: Env, seconds: float) -> None:
        name = _name_of(env)
        if name in self._warned:
            return
        calls, slow = self._counts.get(name, (0, 0))
        calls, slow = calls + 1, slow + (seconds >= SLOW_CALL)
        self._counts[name] = calls, slow
        if slow >= self.LEAST and slow >= self.SHARE * calls:
            self._warned.add(name)
            logger.warning(
                "%s: %d of %d resets and steps took %g ms or longer on the event loop, where they block "
                "every other episode and the engine; set `blocking = True` on the environment class "
                '(`blocking = "cpu"` where Python code keeps a core busy) to run them in threads',
                name, slow, calls, SLOW_CALL * 1000,
            )  # fmt: skip


inline_calls = InlineCalls()
"""The timer of this process."""


async def _outcome(call: Callable[[], Awaitable[Any]], timeout: float | None) -> CallOutcome[Any]:
    """Return result and exception as values, so the environment's `TimeoutError` differs from `Overdue`."""

    async def outcome() -> CallOutcome[Any]:
        try:
            return await call(), None
        except (Exception, SystemExit) as error:
            return None, error

    return await (outcome() if timeout is None else within(timeout, outcome()))


def _has_async_form(env: Env) -> bool:
    """Return whether the environment or one of its wrappers overrides `areset` or `astep`."""
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
    """Return `value` reduced to values that JSON can represent.

    Numpy scalars and arrays become numbers and lists, tuples and sets become lists, non-finite floats become
    None, and other objects become their `repr`. Lone surrogates become U+FFFD.
    """
    kind = type(value)
    if kind is str:
        return encodable(value)
    if value is None or kind is bool or kind is int:  # most values; isinstance is slower
        return value
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if kind is dict or isinstance(value, Mapping):
        return {encodable(str(key)): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    return repr(value)
