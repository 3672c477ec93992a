"""`ForeignEnv`: the base class of inbound bridges, for one environment of another ecosystem.

It adds the guarantees that other ecosystems lack: a turn limit, ``info["success"]``, exactly one end flag,
finite rewards, text that UTF-8 can encode, and a state. The state consists of the seed and the actions of the
episode, which are played again to restore it, so any deterministic environment is stateful.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gem_core import Env, Info
from gem_core._core import ResetOptions, ResetResult, Split, StepResult, check_reset_options
from gem_core._observations import encodable, encodable_observation
from gem_core._util.checks import check_int, check_number, expected
from gem_core._util.messages import error_line
from gem_core._util.seeds import derive_rng
from gem_core.errors import EnvError, GemError
from gem_envs.data._split import split_by_index


class ForeignEnv(Env):
    """An environment of another ecosystem. A subclass overrides `begin` and `advance`.

    `begin` and `advance` may raise anything: the exception becomes an `EnvError` that names the environment.
    `advance` may set both end flags, in which case termination counts, and need not set ``info["success"]``.

    A subclass that waits on an event loop also overrides `areset` and `astep`, from the parts of `reset` and
    `step`: `prepare` or `note`, the call itself inside `failing`, and `keep_reset` or `keep_step`.

    Args:
        name: Name of the environment, for messages.
        max_turns: Number of steps after which an episode is truncated; None if the environment has its own
            limit.
        success_at: Smallest undiscounted return that counts as a success, unless `max_turns` cut the episode
            or `advance` sets ``info["success"]``; None if no return does.
        num_items: Number of items to choose from; `begin` finds the chosen one in `item`. 0 if there are
            none.
    """

    def __init__(
        self, name: str, max_turns: int | None, success_at: float | None, num_items: int = 0
    ) -> None:
        self.name = name
        self.max_turns = check_int("max_turns", max_turns, 1, optional=True)
        self.success_at = check_number("success_at", success_at, optional=True)
        self.num_items = num_items
        self.item: int | None = None
        self.foreign_seed = 0
        self.actions: list[str] = []
        self.total_reward = 0.0
        self.last_result: ResetResult = ("", {})

    # -- for subclasses -----------------------------------------------------------------------

    def begin(self, seed: int) -> ResetResult:
        """Start an episode of the foreign environment with a seed of 31 bits, and no other randomness."""
        raise NotImplementedError

    def advance(self, action: str) -> StepResult:
        """Take one response in the foreign environment."""
        raise NotImplementedError

    def draw_seed(self, seed: int | None) -> int:
        """Return the seed for `begin`, after a reset with `seed`."""
        return self.random.getrandbits(31)

    @property
    def known_options(self) -> tuple[str, ...]:
        """Options that `reset` takes."""
        return ("index", "state") if self.num_items else ("state",)

    # -- the contract -------------------------------------------------------------------------

    def reset(self, seed: int | None = None, *, options: ResetOptions | None = None) -> ResetResult:
        if options and "state" in options:
            check_reset_options(options, self.known_options, self.name)
            self.begin_episode(seed)
            self.resume_episode(options["state"])
            if seed is not None:
                self.begin_episode(seed)
            return self._last_copy()
        self.prepare(seed, options)
        return self._started()

    def step(self, action: str) -> StepResult:
        self.note(action)
        return self._stepped()

    def close(self) -> None:
        self.end_episode()

    def items(self, split: Split) -> Sequence[int] | None:
        return split_by_index(self.num_items).of(split) if self.num_items else None

    def get_state(self) -> dict[str, Any]:
        episode = {
            "seed": self.foreign_seed,
            "item": self.item,
            "actions": list(self.actions),
            "last": None if self._is_fresh() else list(self._last_copy()),
        }
        return super().get_state() | {"episode": episode}

    def set_state(self, state: Mapping[str, Any]) -> None:
        episode = state["episode"]
        if episode["last"] is None:
            self.actions, self.last_result = [], ("", {})
        else:
            self._begin_at(episode["seed"], episode["item"])
            self._started()
            for action in episode["actions"]:
                self.actions.append(action)
                self._stepped()
            if list(self.last_result) != list(episode["last"]):
                self.end_episode()
                raise EnvError(
                    f"{self.name} is not deterministic: the same seed and actions led to "
                    f"{self.last_result!r:.200} instead of {episode['last']!r:.200}, so its state cannot be "
                    "restored"
                )
        super().set_state(state)

    # -- the parts of reset and step ----------------------------------------------------------

    def prepare(self, seed: int | None, options: ResetOptions | None) -> None:
        """Check the options of a reset, and choose seed and item of the episode.

        Raises:
            ConfigError: An option is unknown, or there is no item with the index.
        """
        check_reset_options(options, self.known_options, self.name)
        index = (options or {}).get("index")
        if index is not None:
            check_int("index", index, 0, self.num_items - 1 if self.num_items else None)
        self.begin_episode(seed)
        foreign_seed = self.draw_seed(seed)
        # A named stream, because the foreign environment gets the same seed.
        drawn = derive_rng("item", foreign_seed).randrange(self.num_items) if self.num_items else None
        self._begin_at(foreign_seed, drawn if index is None else index)

    def note(self, action: str) -> None:
        """Record an action, before it is taken.

        Raises:
            ResetNeeded: No episode is running.
            TypeError: The action is not text.
        """
        self.require_reset()
        if not isinstance(action, str):
            raise TypeError(f"an action is the response as a str, not {type(action).__name__}")
        self.actions.append(action)

    @contextmanager
    def failing(self, where: str) -> Iterator[None]:
        """End the episode at an exception, which becomes an `EnvError` unless it is a `GemError`.

        Args:
            where: Call that may raise, such as "step 3".
        """
        try:
            yield
        except Exception as error:
            self.end_episode()
            raise foreign_error(self.name, where, error) from error
        except BaseException:  # such as a cancellation
            self.end_episode()
            raise

    def keep_reset(self, result: ResetResult) -> ResetResult:
        """Convert the result of `begin` to a result of `reset`."""
        observation, info = result
        self.last_result = encodable_observation(observation), json_info(info)
        return self._last_copy()

    def keep_step(self, result: StepResult) -> StepResult:
        """Convert the result of `advance` to a result of `step`."""
        observation, reward, terminated, truncated, info = result
        if not math.isfinite(reward):
            self.end_episode()
            raise EnvError(f"{self.name}: the reward of step {len(self.actions)} was {reward}")
        finished = bool(terminated or truncated)
        terminated = bool(terminated)
        at_limit = self.max_turns is not None and len(self.actions) >= self.max_turns
        truncated = not terminated and (bool(truncated) or at_limit)
        self.total_reward += reward
        info = json_info(info)
        info.setdefault("invalid", None)
        if terminated or truncated:
            self.end_episode()
            solved = self.success_at is not None and self.total_reward >= self.success_at
            info.setdefault("success", finished and solved)
        self.last_result = encodable_observation(observation), info
        observation, info = self._last_copy()
        return observation, reward, terminated, truncated, info

    # -- plumbing -----------------------------------------------------------------------------

    def _is_fresh(self) -> bool:
        return self.last_result == ("", {}) and not self.actions

    def _last_copy(self) -> ResetResult:
        return copy.deepcopy(self.last_result)

    def _begin_at(self, seed: int, item: int | None) -> None:
        self.foreign_seed, self.item, self.actions, self.total_reward = seed, item, [], 0.0

    def _started(self) -> ResetResult:
        with self.failing("the reset"):
            result = self.begin(self.foreign_seed)
        return self.keep_reset(result)

    def _stepped(self) -> StepResult:
        with self.failing(f"step {len(self.actions)}"):
            observation, reward, terminated, truncated, info = self.advance(self.actions[-1])
            reward = float(reward)
        return self.keep_step((observation, reward, terminated, truncated, info))


def foreign_error(name: str, where: str, error: Exception) -> GemError:
    """Return the error to raise for an exception of a foreign environment; a `GemError` stays unchanged.

    Args:
        name: Name of the environment.
        where: Call that raised, such as "step 3".
        error: The exception.
    """
    if isinstance(error, GemError):
        return error
    return EnvError(f"{name}: {where} raised {error_line(error, 500)}")


def json_info(info: Mapping[str, Any]) -> Info:
    """Return a copy of an info dict whose values JSON can represent; arrays become lists."""
    return {encodable(str(key)): json_value(value) for key, value in info.items()}


def json_value(value: Any) -> Any:
    """Convert a value of another ecosystem to a value that JSON can represent.

    Numpy arrays and scalars become lists and numbers, sets become sorted lists of text, numbers that are not
    finite become None, and objects of other types become their `str`.
    """
    if isinstance(value, str):
        return encodable(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None  # also of numpy's float64
    if isinstance(value, Mapping):
        return {encodable(str(key)): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(encodable(str(item)) for item in value)
    if hasattr(value, "tolist"):  # numpy
        return json_value(value.tolist())
    return encodable(str(value))


def check_dict(name: str, value: Any) -> dict[str, Any]:
    """Check for a mapping whose keys are text; return a copy, empty for None.

    Raises:
        ConfigError: The value is anything else, such as text in which the shell has changed the quotes.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise expected(name, value, "a dict such as {'key': 1}", optional=True)
    return dict(value)
