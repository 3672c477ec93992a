"""The environment under test and its recorded episodes, for the rules of the checker."""

from __future__ import annotations

import errno
import itertools
import json
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from gem_core import Env, EnvSpec, Wrapper
from gem_core._util.messages import error_line
from gem_core.errors import SandboxError

_ROOT = Path(__file__).parents[2]
_LIBRARIES = (
    *(str(_ROOT / package) for package in ("gem_core", "gem_chat", "gem_envs", "gem_bridges", "gem_lab")),
    str(Path(os.__file__).parent),
)
"""Folders of this library and of Python's."""


class RuleBroken(Exception):
    """Raised when a rule does not hold, with the evidence and advice for the author.

    Args:
        seen: Evidence.
        advice: How to fix it.
        cause: Text that failures with the same cause share; None for the advice.
    """

    def __init__(self, seen: str, advice: str, cause: str | None = None) -> None:
        super().__init__(seen)
        self.seen = seen
        self.advice = advice
        self.cause = cause or advice


class RuleSkipped(Exception):
    """Raised when a rule does not apply; the message is the reason."""


class MachineLacks(RuleSkipped):
    """Raised when a rule applies but cannot be checked on this machine; the message is the reason."""


def broken(seen: str, advice: str) -> NoReturn:
    """Report the current rule as broken."""
    raise RuleBroken(seen, advice)


def skip(reason: str) -> NoReturn:
    """Report that the current rule does not apply."""
    raise RuleSkipped(reason)


class Frame(NamedTuple):
    """Result of one call of `reset` or `step`."""

    observation: Any
    reward: Any
    """Reward of a step; None for a reset, like the two flags."""
    terminated: Any
    truncated: Any
    info: Any
    text: str
    """The whole result as text at the time of the call, unaffected by later changes of the objects."""

    @property
    def ended(self) -> bool:
        """Whether the episode ended with this result."""
        return bool(self.terminated or self.truncated)


@dataclass
class Recording:
    """One episode: the seed of the reset, the actions, and the frames (one more than there are actions)."""

    seed: int | None
    actions: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the episode ended within the allowed number of turns."""
        return self.frames[-1].ended

    @property
    def total_reward(self) -> float:
        """Undiscounted return."""
        return float(sum(frame.reward for frame in self.frames[1:]))


@dataclass
class Subject:
    """The environment under test.

    Attributes:
        name: Name for messages.
        make: Function that returns a new instance.
        seeds: Random seeds of the episodes to play.
        max_turns: Maximum number of steps within which an episode has to end.
        patience: Seconds of CPU time allowed for one step on a text of one megabyte.
        spec: Registered spec; None if the environment is not registered.
        actions: Random player that replaces `sample_random_action`; None if the environment has one.
        legal_actions: Whether random actions are always legal.
    """

    name: str
    make: Callable[[], Env]
    seeds: tuple[int, ...]
    max_turns: int
    patience: float
    spec: EnvSpec | None = None
    actions: Callable[[Env], str] | None = None
    legal_actions: bool = True
    _opened: list[Env] = field(default_factory=list)
    _recordings: dict[int, Recording] = field(default_factory=dict)
    _mixed: Recording | None = None

    def fresh(self) -> Env:
        """Return a new instance, which is closed at the end of the current rule."""
        env = self.adopt(self.make())
        if self.actions is not None:
            env.sample_random_action = partial(self.actions, env)  # type: ignore[method-assign]
        return env

    def adopt(self, env: Env) -> Env:
        """Close `env` at the end of the current rule, and return it."""
        self._opened.append(env)
        return env

    def close(self) -> None:
        """Close all open instances."""
        while self._opened:
            self._opened.pop().close()

    def recording(self, seed: int) -> Recording:
        """Return the episode of `seed` with random actions, played only once, by a separate instance."""
        if seed not in self._recordings:
            self._recordings[seed] = self.play(self.fresh(), seed, random_action)
        return self._recordings[seed]

    def recordings(self) -> list[Recording]:
        """Return the random episode of every seed, and one in which the oracle plays every second turn."""
        if self._mixed is None:
            turns = itertools.count()
            self._mixed = self.play(
                self.fresh(),
                self.seeds[0],
                lambda env: (next(turns) % 2 and env.oracle_action()) or random_action(env),
            )
        return [*(self.recording(seed) for seed in self.seeds), self._mixed]

    def play(self, env: Env, seed: int | None, choose: Callable[[Env], str]) -> Recording:
        """Play an episode of at most `max_turns` turns with the actions that `choose` returns."""
        recording = Recording(seed, frames=[reset(env, seed)])
        while not recording.ended and len(recording.actions) < self.max_turns:
            action = choose(env)
            recording.actions.append(action)
            recording.frames.append(step(env, action))
        return recording


def random_action(env: Env) -> str:
    """Return a random legal action."""
    try:
        action = env.sample_random_action()
    except NotImplementedError as error:
        broken(
            f"sample_random_action() raised {error_line(error)}",
            "define it, or check with responses to draw from: check_env(..., actions=[...]) or --actions",
        )
    if not isinstance(action, str):
        broken(f"sample_random_action() returned {clip(action)}", "return the action as a str")
    return action


def reset(env: Env, seed: int | None, **kwargs: Any) -> Frame:
    """Reset `env` and return the result as a frame."""
    advice = "a reset must not raise; fix the exception shown above"
    result = _call(env, f"reset({seed})", lambda: env.reset(seed, **kwargs), advice)
    if not isinstance(result, tuple) or len(result) != 2:
        broken(f"reset({seed}) returned {clip(result)}", "return (observation, info)")
    return reset_frame(result)


def step(env: Env, action: str) -> Frame:
    """Step `env` and return the result as a frame."""
    return step_frame(step_result(env, action))


def step_result(env: Env, action: str) -> tuple[Any, ...]:
    """Step `env` and return the five parts of the result, which may have any types."""
    advice = "bad model text must count as a bad move, not raise; fix the exception shown above"
    result = _call(env, f"step({clip(action)})", lambda: env.step(action), advice)
    if not isinstance(result, tuple) or len(result) != 5:
        broken(
            f"step({clip(action)}) returned {clip(result)}",
            "return (observation, reward, terminated, truncated, info)",
        )
    return result


def follow(env: Env, actions: Iterable[str]) -> list[Frame]:
    """Take `actions` in a running episode and return the frames."""
    return [step(env, action) for action in actions]


def replay(env: Env, recording: Recording) -> list[Frame]:
    """Play the recorded episode again with `env` and return the frames."""
    return [reset(env, recording.seed), *follow(env, recording.actions)]


def reset_frame(result: Sequence[Any]) -> Frame:
    """Return the result of a reset as a frame."""
    observation, info = result
    return Frame(observation, None, None, None, info, as_text(result))


def step_frame(result: Sequence[Any]) -> Frame:
    """Return the result of a step as a frame."""
    observation, reward, terminated, truncated, info = result
    return Frame(observation, reward, terminated, truncated, info, as_text(result))


def expect_same(expected: Sequence[Frame], seen: Sequence[Frame], when: str, advice: str) -> None:
    """Report the rule as broken at the first frame in which two episodes differ."""
    for index, (left, right) in enumerate(zip(expected, seen, strict=True)):
        if left.text != right.text:
            at = next((i for i, (a, b) in enumerate(zip(left.text, right.text, strict=False)) if a != b), 0)
            start = max(0, at - 60)
            what = "reset" if left.reward is None else f"step {index}"
            was, now = clip(left.text[start:]), clip(right.text[start:])
            broken(f"{when}, the result of {what} changed from {was} to {now}", advice)


def layers(env: Env) -> list[Env]:
    """Return the environment and everything that it wraps, outermost first."""
    stack = [env]
    while isinstance(stack[-1], Wrapper):
        stack.append(stack[-1].env)
    return stack


_AS_TEXT = json.JSONEncoder(sort_keys=True, default=repr).encode


def as_text(value: Any) -> str:
    """Return `value` as text that is equal for equal values."""
    try:
        return _AS_TEXT(value)
    except (TypeError, ValueError):  # keys that are not strings, or a cycle
        return repr(value)


def clip(value: Any, length: int = 160) -> str:
    """Return the `repr` of a value, shortened for a message."""
    text = repr(value[: length + 1] if isinstance(value, str) else value)  # a str may be a megabyte
    return text if len(text) <= length else f"{text[:length]}..."


_MACHINE = frozenset(
    getattr(errno, name, None)
    for name in ("EAGAIN", "EDQUOT", "EMFILE", "ENFILE", "ENOLCK", "ENOMEM", "ENOSPC", "EROFS")
)
"""Errors of the system that say that something is used up, or that nothing can be written."""


def is_machines(error: BaseException) -> bool:
    """Return whether an error says what this machine lacks: space, processes, memory, or a sandbox level."""
    if isinstance(error, OSError):
        return error.errno in _MACHINE
    return isinstance(error, SandboxError) or is_thread_limit(error)


def _call(env: Env, what: str, call: Callable[[], Any], advice: str) -> Any:
    try:
        return call()
    except Exception as error:
        if is_machines(error):
            raise
        if isinstance(error, AttributeError) and isinstance(error.obj, Env):
            advice = (
                f"set {error.name!r} before it is read; if an episode changes it, list it in `state_fields`"
            )
        name = type(error).__name__
        seen = f"{env!r}: {what} raised {name}: {clip(str(error))}{place(error)}"
        raise RuleBroken(seen, advice, name + place(error)) from error


def place(error: BaseException) -> str:
    """Return " (FILE:LINE in FUNCTION)" of the call that raised, or "" if no file is known.

    It is the innermost call outside of this package and Python's library, if there is one.
    """
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<")]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f" ({Path(frame.filename).name}:{frame.lineno} in {frame.name})"


def is_thread_limit(error: BaseException) -> bool:
    """Return whether the system refused to start a thread, which Python reports as no OSError."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is threading.Thread.start.__code__
