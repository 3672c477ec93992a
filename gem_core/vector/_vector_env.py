"""`VectorEnv`: many environments behind one object, in lockstep or each at its own pace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from gem_core._core import Env, Info, Observation, ResetOptions, StepResult
from gem_core._util.checks import check_int
from gem_core._util.closing import Closing
from gem_core._util.threads import ThreadPool, call_in
from gem_core.errors import CallOrderError, ConfigError, ResetNeeded
from gem_core.vector._backend import InlineBackend
from gem_core.vector._mailbox import Mailbox
from gem_core.vector._slot import AutoresetMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gem_core._spec import EnvSpec
    from gem_core.vector._backend import Backend, SlotCall

WAITING_THREADS = ThreadPool(512, "gem-vector")
"""Threads in which the async forms of all vector envs wait; they do not keep the interpreter from exiting."""

_Result = TypeVar("_Result")
_BEFORE_RESET = "the vector env has not been reset; call reset() for all environments first"


class VectorStep(NamedTuple):
    """The result of `VectorEnv.step` for n environments; entry i belongs to environment i."""

    observations: list[Observation]
    rewards: NDArray[np.float64]
    """Shape (n,)."""
    terminated: NDArray[np.bool_]
    """Shape (n,)."""
    truncated: NDArray[np.bool_]
    """Shape (n,); never true where `terminated` is."""
    infos: list[Info]


class VectorEnv(Closing):
    """n environments that are stepped together, or individually as their actions arrive.

    In lockstep:

        observations, infos = envs.reset(seed=0)
        observations, rewards, terminated, truncated, infos = envs.step(actions)

    Individually, so that a slow environment does not delay the others:

        envs.send({i: policy(o) for i, o in enumerate(observations)})
        while running:
            ready = envs.recv()
            envs.send({i: policy(result[0]) for i, result in ready.items()})

    If an environment raises, exceeds the time limit, returns malformed values, or loses its worker, its
    episode is cut: reward 0, truncated, an empty observation, and the reason in ``info["error"]``. The
    environment is rebuilt from its spec, with a seed derived from its last one; the others continue.

    Create it with `make_vec`, and `close` it or use it in a ``with`` statement.
    """

    def __init__(
        self,
        backend: Backend,
        specs: Sequence[EnvSpec],
        autoreset: AutoresetMode,
        seed: int | Sequence[int | None] | None = None,
    ) -> None:
        self.specs = list(specs)
        self.num_envs = len(self.specs)
        self.autoreset = autoreset
        self._backend = backend
        self._seed = seed
        self._observations: list[Observation] = []  # latest observation of each; empty before the first reset
        self._ended: set[int] = set()  # not kept in SAME_STEP, where the next episode begins at once
        self._sent: set[int] = set()  # with a sent step whose result was not received yet
        self._mail = Mailbox(backend)
        self._lock = self._mail.changed  # async calls run in threads; free while one of them waits

    @property
    def backend(self) -> str:
        """Name of the backend in use, after ``auto`` has chosen."""
        return self._backend.name

    @property
    def envs(self) -> list[Env | None]:
        """The environments, wrappers included; None for one that failed and is not rebuilt yet.

        Raises:
            ConfigError: The backend keeps its environments in other processes.
        """
        return self._backend.envs()

    # -- lockstep -----------------------------------------------------------------------------

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        *,
        options: ResetOptions | Sequence[ResetOptions | None] | None = None,
        mask: Sequence[bool] | NDArray[np.bool_] | None = None,
    ) -> tuple[list[Observation], list[Info]]:
        """Start new episodes.

        Args:
            seed: Environment i gets ``seed + i``, or entry i of a sequence. None continues with each
                environment's own generator; the first reset then uses the seed given to `make_vec`.
            options: Options for all environments, or one entry per environment; see `ResetOptions`.
            mask: Array of shape (n,) that selects the environments to reset; None resets all.

        Returns:
            Observations and infos of all n environments. An environment that is not reset has its latest
            observation and an empty info. An environment that failed has an empty observation and
            ``info["error"]``; its next step is cut.

        Raises:
            ConfigError: An environment rejects its options, a seed is negative or not a whole number,
                or an argument has the wrong length.
            CallOrderError: An environment to be reset has an unfinished step.
        """
        self._mail.settle()
        with self._lock:
            chosen = self._masked(mask)
            self._check_idle(chosen)
            if seed is None and not self._observations:
                seed = self._seed
            seeds = self._seeds(seed)
            per_env = (
                self._per_env("options", options)
                if isinstance(options, Sequence)
                else [options] * self.num_envs
            )
            self._mail.start([(i, "reset", (seeds[i], per_env[i])) for i in chosen], batch=True)
        results = self._mail.finish(chosen)
        with self._lock:
            if not self._observations:
                self._observations = [""] * self.num_envs
            infos: list[Info] = [{} for _ in range(self.num_envs)]
            rejection: ConfigError | None = None
            for i, result in zip(chosen, results, strict=True):
                if isinstance(result, ConfigError):
                    rejection = ConfigError(f"environment {i}: {result}")
                else:
                    self._observations[i], infos[i] = result
                    self._ended.discard(i)
            if rejection is not None:
                raise rejection
            if self.autoreset is AutoresetMode.DISABLED:
                self._ended.update(i for i in chosen if "error" in infos[i])
            return list(self._observations), infos

    def step(self, actions: Sequence[str | None] | Mapping[int, str | None]) -> VectorStep:
        """Step all environments, or the ones in a mapping, and wait for all results.

        Args:
            actions: Sequence of n responses, or mapping from index to response. With a mapping, only these
                environments are stepped, and entry k of the result belongs to the k-th of them. None is
                allowed as an action only if it is ignored: in `NEXT_STEP` mode, for an environment whose
                episode just ended.

        Raises:
            ResetNeeded: There was no reset yet, or in `DISABLED` mode an episode has ended.
            TypeError: `actions` is a single str or has the wrong length, or an action is not a str.
            IndexError: There is no environment with that index.
            CallOrderError: An environment is still busy with an action from `send`.
        """
        self._mail.settle()
        with self._lock:
            self._mail.check_open()
            texts: Sequence[str | None]
            if isinstance(actions, Mapping):
                indices: Sequence[int] = list(actions)
                texts = list(actions.values())
            else:
                self._check_number(actions)
                indices, texts = range(self.num_envs), actions
            self._check_steps(indices, texts)
            if isinstance(self._backend, InlineBackend):
                return self._stepped(indices, self._backend.step(indices, texts))
            calls: list[SlotCall] = [(i, "step", (action,)) for i, action in zip(indices, texts, strict=True)]
            self._mail.start(calls, batch=True)
        results = self._mail.finish(indices)
        with self._lock:
            return self._stepped(indices, results)

    # -- each at its own pace -----------------------------------------------------------------

    def send(self, actions: Mapping[int, str]) -> None:
        """Start steps and return at once (the inline backend runs them before it returns).

        Args:
            actions: Response by index of the environment.

        Raises:
            ConfigError: The mode is `NEXT_STEP`, whose reset steps exist in lockstep only.
            ResetNeeded: There was no reset yet, or in `DISABLED` mode an episode has ended.
            CallOrderError: An environment is still busy, or its last result was not received.
        """
        if self.autoreset is AutoresetMode.NEXT_STEP:
            raise ConfigError(
                "send() and recv() do not work with AutoresetMode.NEXT_STEP, which is defined for "
                "lockstep only; create the vector env with SAME_STEP or DISABLED, or use step()"
            )
        self._mail.settle()
        with self._lock:
            self._mail.check_open()
            self._check_steps(list(actions), list(actions.values()))
            self._sent.update(actions)
            self._mail.start([(i, "step", (action,)) for i, action in actions.items()], batch=False)

    def recv(self, min_ready: int = 1, timeout: float | None = None) -> dict[int, StepResult]:
        """Wait for sent steps and return all results that are ready.

        Args:
            min_ready: Number of results to wait for; at most the number of sent steps. 0 does not wait.
            timeout: Seconds after which to return the results so far, even if there are none; None means no
                limit.

        Returns:
            ``{index: (observation, reward, terminated, truncated, info)}``, in the order in which the steps
            finished.

        Raises:
            CallOrderError: All results of sent steps have been received.
        """
        self._check_sent()
        self._mail.wait_for(lambda: self._missing(min_ready) <= 0, timeout)
        return self._take()

    # -- async forms --------------------------------------------------------------------------

    async def areset(
        self,
        seed: int | Sequence[int | None] | None = None,
        *,
        options: ResetOptions | Sequence[ResetOptions | None] | None = None,
        mask: Sequence[bool] | NDArray[np.bool_] | None = None,
    ) -> tuple[list[Observation], list[Info]]:
        """Call `reset` without blocking the event loop."""
        return await self._off_loop(lambda: self.reset(seed, options=options, mask=mask))

    async def astep(self, actions: Sequence[str | None] | Mapping[int, str | None]) -> VectorStep:
        """Call `step` without blocking the event loop."""
        return await self._off_loop(lambda: self.step(actions))

    async def arecv(self, min_ready: int = 1, timeout: float | None = None) -> dict[int, StepResult]:
        """Call `recv` without blocking the event loop; if the call is canceled, no result is lost."""
        self._check_sent()
        await self._off_loop(lambda: self._mail.wait_for(lambda: self._missing(min_ready) <= 0, timeout))
        return self._take()

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every environment and end every thread and process. May be called more than once."""
        if not self._mail.closed:
            self._mail.closed = True
            self._backend.close()

    def __len__(self) -> int:
        return self.num_envs

    def __repr__(self) -> str:
        ids = sorted({spec.id for spec in self.specs})
        return f"<VectorEnv of {self.num_envs} {', '.join(ids)}, backend {self.backend}>"

    # -- parts --------------------------------------------------------------------------------

    async def _off_loop(self, call: Callable[[], _Result]) -> _Result:
        return call() if self.backend == "inline" else await call_in(WAITING_THREADS, call)

    def _missing(self, min_ready: int) -> int:
        """Return the number of results that `recv` has yet to return."""
        ready = len(self._sent & self._mail.results.keys())
        return min(min_ready, len(self._sent)) - ready

    def _take(self) -> dict[int, StepResult]:
        with self._lock:
            ready = {i: self._mail.results.pop(i) for i in list(self._mail.results) if i in self._sent}
            self._sent.difference_update(ready)
            for index, (observation, _, terminated, truncated, _) in ready.items():
                self._observations[index] = observation
                if self.autoreset is AutoresetMode.DISABLED and (terminated or truncated):
                    self._ended.add(index)
            return ready

    def _stepped(self, indices: Sequence[int], results: Sequence[StepResult]) -> VectorStep:
        observations, rewards, terminated, truncated, infos = (
            zip(*results, strict=True) if results else [()] * 5
        )
        step = VectorStep(
            list(observations),
            np.array(rewards, dtype=np.float64),
            np.array(terminated, dtype=np.bool_),
            np.array(truncated, dtype=np.bool_),
            list(infos),
        )
        if isinstance(indices, range):  # all of them
            self._observations[:] = observations
        else:
            for index, observation in zip(indices, observations, strict=True):
                self._observations[index] = observation
        if self.autoreset is not AutoresetMode.SAME_STEP:
            self._ended.difference_update(indices)
            ended = step.terminated | step.truncated
            self._ended.update(index for index, over in zip(indices, ended, strict=True) if over)
        return step

    def _masked(self, mask: Sequence[bool] | NDArray[np.bool_] | None) -> list[int]:
        self._mail.check_open()
        if mask is None:
            return list(range(self.num_envs))
        flags = np.asarray(mask)
        if flags.dtype != np.bool_ or flags.shape != (self.num_envs,):
            raise ConfigError(
                f"mask: expected {self.num_envs} bools, got {flags.dtype} of shape {flags.shape}"
            )
        if not self._observations:
            raise ResetNeeded(_BEFORE_RESET)
        return [int(i) for i in np.flatnonzero(flags)]

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (Sequence, np.ndarray)) and not isinstance(seed, (str, bytes)):
            return [None if s is None else _whole(s) for s in self._per_env("seed", seed)]
        first = _whole(seed)
        return [first + i for i in range(self.num_envs)]

    def _per_env(self, name: str, values: Any) -> Sequence[Any]:
        if len(values) != self.num_envs:
            raise ConfigError(f"{name}: expected one or {self.num_envs} values, got {len(values)}")
        return list(values)

    def _check_number(self, actions: Sequence[str | None]) -> None:
        if isinstance(actions, (str, bytes)):
            raise TypeError(f"actions: expected {self.num_envs} strings, got the one string {actions!r:.80}")
        if len(actions) != self.num_envs:
            raise TypeError(f"actions: expected {self.num_envs}, one per environment, got {len(actions)}")

    def _check_steps(self, indices: Sequence[int], actions: Sequence[str | None]) -> None:
        """Check that each of these environments exists, is running, and is free to take its action."""
        if isinstance(indices, list):  # given by the caller
            for index in indices:
                if not (isinstance(index, (int, np.integer)) and 0 <= index < self.num_envs):
                    raise IndexError(f"environment {index!r}: expected an int from 0 to {self.num_envs - 1}")
        if set(map(type, actions)) != {str}:
            for index, action in zip(indices, actions, strict=True):
                if not (isinstance(action, str) or (action is None and index in self._ended)):
                    raise TypeError(f"action of environment {index}: expected a str, got {action!r}")
        self._check_running(indices)
        self._check_idle(indices)

    def _check_running(self, indices: Iterable[int]) -> None:
        if not self._observations:
            raise ResetNeeded(_BEFORE_RESET)
        if self._ended and self.autoreset is AutoresetMode.DISABLED:
            ended = sorted(self._ended.intersection(indices))
            if ended:
                raise ResetNeeded(
                    f"the episodes of environments {ended} ended; reset them with reset(mask=...), or use "
                    f"AutoresetMode.SAME_STEP"
                )

    def _check_idle(self, indices: Iterable[int]) -> None:
        if self._mail.running or self._mail.results:
            waiting = sorted((self._mail.running | self._mail.results.keys()).intersection(indices))
            if waiting:
                raise CallOrderError(f"environments {waiting} have an unfinished step; call recv() first")

    def _check_sent(self) -> None:
        self._mail.check_open()
        if not self._sent:
            raise CallOrderError("recv() was called without a pending step; call send() first")


def _whole(seed: Any) -> int:
    """Check a seed; in the environment, a wrong seed would count as a failure and cause a rebuild."""
    return check_int("seed", seed, 0)
