"""A slot of a vector env: an environment with autoreset and repair.

Every backend runs the same `Slot` code, whether in the caller's thread, in a pool, in another process, or in
a Ray actor, so the results are equal.
"""

from __future__ import annotations

import enum
import logging
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from gem_core._core import Env, Info, ResetOptions, ResetResult, StepResult
from gem_core._util.messages import error_line
from gem_core._util.seeds import derive_rng
from gem_core._workers.recipe import EnvRecipe
from gem_core.errors import ConfigError, EnvError

logger = logging.getLogger(__name__)


class AutoresetMode(enum.Enum):
    """What happens when an episode ends; names and meanings as in Gymnasium 1.x."""

    NEXT_STEP = "NextStep"
    """The next step ignores its action, resets, and returns reward 0 and both flags False."""
    SAME_STEP = "SameStep"
    """The step that ends the episode returns the first observation and info of the next one; the last
    observation and info of the ended episode are in ``info["final_obs"]`` and ``info["final_info"]``."""
    DISABLED = "Disabled"
    """The environment is not reset; a step raises `ResetNeeded` until `VectorEnv.reset(mask=...)`."""


@dataclass
class SlotPlan:
    """All information needed to build a slot in any worker, even after workers were lost.

    Attributes:
        index: Index of the slot in the vector env.
        recipe: Recipe for its environment.
        autoreset: What happens when an episode ends.
        seed: Seed of the last seeded reset; None if there was none.
        losses: Number of times that the slot's worker was lost since that reset.
        lost: Reason why the running episode was lost; None if it was not lost. A slot built from a plan with
            a reason reports it at its next step, and builds the environment only then.
    """

    index: int
    recipe: EnvRecipe
    autoreset: AutoresetMode
    seed: int | None = None
    losses: int = 0
    lost: str | None = None

    def note_reset(self, seed: int | None) -> None:
        """Record a reset that is about to run."""
        self.lost = None
        if seed is not None:
            self.seed, self.losses = seed, 0

    def note_loss(self, message: str) -> None:
        """Record that the slot was lost with its worker."""
        self.lost = message
        self.losses += 1


class Slot:
    """An environment with autoreset, checks, and repair. No method raises if the environment fails."""

    def __init__(self, plan: SlotPlan, env: Env | None = None) -> None:
        """Use `env`, or else build the environment, unless the plan says that its episode is lost."""
        self._index = plan.index
        self._recipe = plan.recipe
        self._autoreset = plan.autoreset
        self._seed = plan.seed
        self._losses = plan.losses
        self._rebuilds = 0
        self._lost = plan.lost
        self._ended = False
        self._env = env
        if env is None and plan.lost is None:
            self._env = plan.recipe.make()

    def reset(self, seed: int | None, options: ResetOptions | None = None) -> ResetResult | ConfigError:
        """Start an episode; if that fails, the observation is empty and the info has ``error``.

        If the environment rejects `options`, which is an error of the caller, the ConfigError is returned.
        """
        if seed is not None:
            self._seed, self._losses, self._rebuilds = seed, 0, 0
        try:
            result = self._start(seed, options)
            self._lost = None
        except Exception as error:
            if isinstance(error, ConfigError) and options is not None:
                return error
            result = self.fail("reset", error)
        self._ended = False
        return result

    def step(self, action: str | None) -> StepResult:
        """Take one action and apply the autoreset mode; a failure cuts the episode."""
        env = self._env
        if env is None or self._ended:
            return self._step_without_episode()
        try:
            result = env.step(action)  # type: ignore[arg-type]  # None only where it is ignored
            observation, reward, terminated, truncated, info = result
            if not (  # fast path for the usual case; _checked does the rest
                type(reward) is float
                and reward - reward == 0.0  # neither NaN nor infinite
                and type(terminated) is bool
                and type(truncated) is bool
                and not (terminated and truncated)
                and type(observation) is str
                and type(info) is dict
            ):
                result = _checked(result)
        except Exception as error:
            cut: StepResult = self.fail("step", error)
            return cut
        return self._end(result) if terminated or truncated else result

    def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method and return any error as a failure, so that the worker survives even a SystemExit."""
        try:
            return getattr(self, method)(*args)
        except BaseException as error:
            return self.fail(method, error)

    def fail(self, method: str, error: BaseException) -> Any:
        """Discard the failed environment and return the result with which `method` reports `error`."""
        message = self._discard(error)
        if method == "step":
            return self._cut(message)
        self._lost = message
        return failed_reset(message)

    def close(self) -> None:
        """Close the environment; an error is logged."""
        env, self._env = self._env, None
        if env is not None:
            try:
                env.close()
            except Exception:
                logger.warning("env %d: close() failed", self._index, exc_info=True)

    @property
    def env(self) -> Env | None:
        """The environment; None after a failure, until the next reset."""
        return self._env

    # -- parts --------------------------------------------------------------------------------

    def _start(self, seed: int | None = None, options: ResetOptions | None = None) -> ResetResult:
        if self._env is None:
            self._env = self._recipe.make()
            self._rebuilds += 1
            if seed is None and self._seed is not None:
                seed = rebuilt_seed(self._seed, self._losses, self._rebuilds)
        env = self._env
        observation, info = env.reset(seed) if options is None else env.reset(seed, options=options)
        _check_observation("reset()", observation, info)
        return observation, info

    def _step_without_episode(self) -> StepResult:
        if self._lost is not None:
            message, self._lost = self._lost, None
            return self._cut(message)
        self._ended = False  # NEXT_STEP: this step is the reset
        try:
            observation, info = self._start()
        except Exception as error:
            observation, info = self.fail("reset", error)
        return observation, 0.0, False, False, info

    def _end(self, result: StepResult) -> StepResult:
        if self._autoreset is not AutoresetMode.SAME_STEP:
            self._ended = True
            return result
        final_observation, reward, terminated, truncated, final_info = result
        observation, info = self._restart()
        info["final_obs"] = final_observation
        info["final_info"] = dict(final_info)
        return observation, reward, terminated, truncated, info

    def _cut(self, message: str) -> StepResult:
        result = failed_step(message, self._autoreset)
        if self._autoreset is not AutoresetMode.SAME_STEP:
            self._ended = True
            return result
        observation, info = self._restart()
        info.update(result[-1])
        return observation, *result[1:-1], info

    def _restart(self) -> ResetResult:
        """Begin the next episode, in a rebuilt environment if the old one fails."""
        try:
            return self._start()
        except Exception as error:
            self._discard(error)
        try:
            return self._start()
        except Exception as error:
            self._lost = self._discard(error)  # the next step reports it
            return "", {}

    def _discard(self, error: BaseException) -> str:
        """Discard the failed environment and return one line about the error."""
        message = error_line(error)
        logger.warning("env %d (%s): %s", self._index, self._recipe.spec.id, message, exc_info=error)
        self.close()
        return message


def failed_reset(message: str) -> ResetResult:
    """Return the result of a reset that failed."""
    return "", {"error": message}


def failed_step(message: str, autoreset: AutoresetMode) -> StepResult:
    """Return the result of a step whose failure ended the episode, with an empty observation."""
    info: Info = {"error": message}
    if autoreset is AutoresetMode.SAME_STEP:
        info = {"error": message, "final_obs": "", "final_info": {"error": message}}
    return "", 0.0, False, True, info


def rebuilt_seed(seed: int, losses: int, rebuilds: int) -> int:
    """Return the seed of a rebuilt environment: the same for the same history of failures.

    Args:
        seed: Seed of the slot's last seeded reset.
        losses: Number of workers lost since then.
        rebuilds: Number of environments rebuilt since then in the current worker.
    """
    return derive_rng(seed, losses, rebuilds).getrandbits(31)


def _checked(result: tuple[Any, ...]) -> StepResult:
    """Return the result with plain Python types, or raise an `EnvError` that says what is wrong."""
    observation, reward, terminated, truncated, info = result
    if not (isinstance(reward, Real) and math.isfinite(reward)):
        raise EnvError(f"step() returned the reward {reward!r}: expected a finite number")
    if not (isinstance(terminated, (bool, np.bool_)) and isinstance(truncated, (bool, np.bool_))):
        raise EnvError(f"step() returned the flags {terminated!r} and {truncated!r}: expected two bools")
    if terminated and truncated:
        raise EnvError("step() returned both terminated and truncated as True")
    _check_observation("step()", observation, info)
    return observation, float(reward), bool(terminated), bool(truncated), info


def _check_observation(call: str, observation: object, info: object) -> None:
    if not (isinstance(observation, (str, list)) and isinstance(info, dict)):
        raise EnvError(
            f"{call} returned an observation of type {type(observation).__name__} and an info of type "
            f"{type(info).__name__}: expected a str or a list of content parts, and a dict"
        )
