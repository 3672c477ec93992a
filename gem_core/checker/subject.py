"""What the rules of the checker work with: the environment under test and recorded episodes of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from gem_core.core import Env
from gem_core.spec import EnvSpec
from gem_core.wrapper import Wrapper


class RuleBroken(Exception):
    """A rule does not hold: what was seen, and what the author should do."""

    def __init__(self, seen: str, advice: str) -> None:
        super().__init__(seen)
        self.seen = seen
        self.advice = advice


class RuleSkipped(Exception):
    """A rule does not apply; the message is the reason."""


def broken(seen: str, advice: str) -> NoReturn:
    """Report the rule at hand as broken."""
    raise RuleBroken(seen, advice)


def skip(reason: str) -> NoReturn:
    """Report that the rule at hand does not apply."""
    raise RuleSkipped(reason)


class Frame(NamedTuple):
    """What one call of `reset` or `step` returned."""

    observation: Any
    reward: Any
    """None for a reset, like the two flags."""
    terminated: Any
    truncated: Any
    info: Any
    text: str
    """All of it as text at the moment of the call; later changes of the objects do not show."""

    @property
    def ended(self) -> bool:
        """Whether the episode ended here."""
        return bool(self.terminated or self.truncated)


@dataclass
class Recording:
    """One episode: the seed of the reset, the actions, and a frame more than actions."""

    seed: int | None
    actions: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the episode came to its end within the turns that were allowed."""
        return self.frames[-1].ended

    @property
    def total_reward(self) -> float:
        """Undiscounted return."""
        return float(sum(frame.reward for frame in self.frames[1:]))


@dataclass
class Subject:
    """The environment under test.

    Attributes:
        name: For messages.
        make: Builds a new instance.
        seeds: Episodes that are played.
        max_turns: An episode has to end within so many steps.
        patience: Seconds of CPU time that one step may take on a text of a megabyte.
        spec: How it was registered; None when it was not.
    """

    name: str
    make: Callable[[], Env]
    seeds: tuple[int, ...]
    max_turns: int
    patience: float
    spec: EnvSpec | None = None
    _opened: list[Env] = field(default_factory=list)
    _recordings: dict[int, Recording] = field(default_factory=dict)
    _mixed: Recording | None = None

    def fresh(self) -> Env:
        """A new instance, closed at the end of the rule that asked for it."""
        return self.adopt(self.make())

    def adopt(self, env: Env) -> Env:
        """Have `env` closed at the end of the rule."""
        self._opened.append(env)
        return env

    def close(self) -> None:
        """Close the instances that are open."""
        while self._opened:
            self._opened.pop().close()

    def recording(self, seed: int) -> Recording:
        """The episode of `seed` with random actions, played once by an instance of its own."""
        if seed not in self._recordings:
            self._recordings[seed] = self.play(self.fresh(), seed, random_action)
        return self._recordings[seed]

    def recordings(self) -> list[Recording]:
        """The random episode of every seed, and one where the oracle has every second turn."""
        if self._mixed is None:
            turns = itertools.count()
            self._mixed = self.play(
                self.fresh(),
                self.seeds[0],
                lambda env: (next(turns) % 2 and env.oracle_action()) or random_action(env),
            )
        return [*(self.recording(seed) for seed in self.seeds), self._mixed]

    def play(self, env: Env, seed: int | None, choose: Callable[[Env], str]) -> Recording:
        """Play an episode, at most `max_turns` long, with the actions that `choose` gives."""
        recording = Recording(seed, frames=[reset(env, seed)])
        while not recording.ended and len(recording.actions) < self.max_turns:
            action = choose(env)
            recording.actions.append(action)
            recording.frames.append(step(env, action))
        return recording


def random_action(env: Env) -> str:
    """A random legal action."""
    action = env.sample_random_action()
    if not isinstance(action, str):
        broken(f"sample_random_action() returned {clip(action)}", "return the response as a str")
    return action


def reset(env: Env, seed: int | None, **kwargs: Any) -> Frame:
    """`env.reset` as a frame."""
    result = _call(env, f"reset({seed})", lambda: env.reset(seed, **kwargs))
    if not isinstance(result, tuple) or len(result) != 2:
        broken(f"reset({seed}) returned {clip(result)}", "return (observation, info)")
    return reset_frame(result)


def step(env: Env, action: str) -> Frame:
    """`env.step` as a frame."""
    result = _call(env, f"step({clip(action)})", lambda: env.step(action))
    if not isinstance(result, tuple) or len(result) != 5:
        broken(
            f"step({clip(action)}) returned {clip(result)}",
            "return (observation, reward, terminated, truncated, info)",
        )
    return step_frame(result)


def follow(env: Env, actions: Iterable[str]) -> list[Frame]:
    """Take `actions` in a running episode."""
    return [step(env, action) for action in actions]


def replay(env: Env, recording: Recording) -> list[Frame]:
    """The frames of the recorded episode, played again by `env`."""
    return [reset(env, recording.seed), *follow(env, recording.actions)]


def reset_frame(result: Sequence[Any]) -> Frame:
    """Result of a reset as a frame."""
    observation, info = result
    return Frame(observation, None, None, None, info, as_text(result))


def step_frame(result: Sequence[Any]) -> Frame:
    """Result of a step as a frame."""
    observation, reward, terminated, truncated, info = result
    return Frame(observation, reward, terminated, truncated, info, as_text(result))


def expect_same(expected: Sequence[Frame], seen: Sequence[Frame], when: str, advice: str) -> None:
    """Report the first frame in which two episodes differ."""
    for number, (left, right) in enumerate(zip(expected, seen, strict=True)):
        if left.text != right.text:
            at = next((i for i, (a, b) in enumerate(zip(left.text, right.text, strict=False)) if a != b), 0)
            start = max(0, at - 60)
            what = "reset" if left.reward is None else f"step {number}"
            was, now = clip(left.text[start:]), clip(right.text[start:])
            broken(f"{when}, the result of {what} changed from {was} to {now}", advice)


def layers(env: Env) -> list[Env]:
    """The environment and what it wraps, outermost first."""
    found = [env]
    while isinstance(found[-1], Wrapper):
        found.append(found[-1].env)
    return found


def as_text(value: Any) -> str:
    """`value` as text that is equal for equal values."""
    try:
        return json.dumps(value, sort_keys=True, default=repr)
    except (TypeError, ValueError):  # keys that are no strings, or a cycle
        return repr(value)


def clip(value: Any, length: int = 160) -> str:
    """`repr` of a value, cut for a message."""
    text = repr(value[: length + 1] if isinstance(value, str) else value)  # a str may be a megabyte
    return text if len(text) <= length else f"{text[:length]}..."


def _call(env: Env, what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise RuleBroken(
            f"{env!r}: {what} raised {type(error).__name__}: {clip(str(error))}",
            "bad model text is a bad move, never an exception; fix what raised (the cause is shown above)",
        ) from error
