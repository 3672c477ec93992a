"""Rules on the results of an environment and its treatment of actions.

Each rule is a function, whose name and docstring appear in reports. `RULES` holds the rules in the order of
definition; a rule may rely on earlier ones. The rules on repeating an episode are in
`gem_lab._checker.replay_rules`.
"""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from gem_core import Env, make
from gem_core._images import check_parts
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, DataError, ResetNeeded
from gem_core.images import image_urls
from gem_lab._checker.subject import (
    Frame,
    Recording,
    Subject,
    as_text,
    broken,
    clip,
    layers,
    random_action,
    reset,
    skip,
    step,
)
from gem_lab._checker.texts import JUNK, long_texts, nasty_texts

TOLERANCE = 1e-6
"""Tolerance for rounding errors in sums of rewards."""
LUCKY_SEEDS = 50
"""Number of further episodes in which an oracle that needs luck may reach `max_return`."""
_INVALID = ("format", "illegal", "length")
_NO_REWARD = "pay format_error_reward for text without a readable action"


class ContractRule(NamedTuple):
    """One rule of the contract."""

    name: str
    statement: str
    check: Callable[[Subject], None]
    needs: str | None
    """Flag of the `EnvSpec` that the rule requires, "deterministic" or "stateful"; None for no flag."""
    relies_on: tuple[str, ...]
    """Names of earlier rules; if one of them is broken, this rule says nothing."""


RULES: list[ContractRule] = []


def rule(
    needs: str | None = None, *, relies_on: Iterable[str] = ("signatures", "reset_results")
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Return a decorator that adds a function to `RULES`; see `ContractRule` for the arguments."""

    def add(check: Callable[[Subject], None]) -> Callable[[Subject], None]:
        statement = (check.__doc__ or "").split("\n")[0]
        RULES.append(ContractRule(check.__name__, statement, check, needs, tuple(relies_on)))
        return check

    return add


# -- form of calls and results ----------------------------------------------------------------


@rule(relies_on=())
def signatures(subject: Subject) -> None:
    """The signatures are ``step(action)`` and ``reset(seed=None, *, options=None)``."""
    for env in layers(subject.fresh()):
        for name in ("step", "astep"):
            parameters = list(inspect.signature(getattr(env, name)).parameters)
            if parameters != ["action"]:
                broken(f"{env!r}.{name}({', '.join(parameters)})", f"declare it as {name}(self, action)")
        for name in ("reset", "areset"):
            signature = inspect.signature(getattr(env, name))
            positional = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
            options = signature.parameters.get("options")
            fits = [p.name for p in positional] == ["seed"] and positional[0].default is None
            if not fits or options is None or options.kind is not options.KEYWORD_ONLY:
                broken(
                    f"{env!r}.{name}{signature}", f"declare it as {name}(self, seed=None, *, options=None)"
                )


@rule()
def unknown_arguments(subject: Subject) -> None:
    """The constructor raises TypeError for an unknown keyword argument."""
    env = subject.fresh().unwrapped
    args, kwargs = env._init_args
    unknown: dict[str, Any] = {"no_such_argument": 1}
    spec = subject.spec
    build: Callable[..., Env] = partial(make, spec) if spec else partial(type(env), *args, **kwargs)
    try:
        subject.adopt(build(**unknown))
    except TypeError:
        return
    broken("no_such_argument=1 was accepted", "raise TypeError for unknown keyword arguments")


@rule(relies_on=())
def reset_results(subject: Subject) -> None:
    """A reset returns an observation and an info dict of the documented types."""
    env = subject.fresh()
    for seed in subject.seeds:
        frame = reset(env, seed)
        _check_observation(frame.observation)
        _check_images(frame, env)
        _check_info(frame.info, ended=False)


@rule()
def step_results(subject: Subject) -> None:
    """A step returns a finite float reward, two bools that are not both True, and a valid info dict."""
    env = subject.fresh()
    for seed in subject.seeds:
        _check_steps(subject.recording(seed))
        for frame in subject.recording(seed).frames:
            _check_images(frame, env)


@rule()
def results_are_new(subject: Subject) -> None:
    """Every call returns a new info dict, and later calls do not change earlier results."""
    for seed in subject.seeds:
        frames = subject.recording(seed).frames
        if len({id(frame.info) for frame in frames}) < len(frames):
            broken(f"seed {seed}: two calls returned the same info dict", "create a new dict each time")
        for index, frame in enumerate(frames):
            parts = [frame.observation, frame.info]
            if index:
                parts[1:1] = [frame.reward, frame.terminated, frame.truncated]
            if as_text(parts) != frame.text:
                broken(
                    f"seed {seed}: the result of call {index} changed from {clip(frame.text)} to "
                    f"{clip(as_text(parts))}",
                    "return copies of lists and dicts that the environment changes later",
                )


# -- actions and the end of an episode --------------------------------------------------------


@rule()
def random_actions_are_legal(subject: Subject) -> None:
    """`sample_random_action` returns legal actions: ``info["invalid"]`` stays None."""
    if not subject.legal_actions:
        skip("the random actions are drawn without knowing what is legal")
    for seed in subject.seeds:
        recording = subject.recording(seed)
        for action, frame in zip(recording.actions, recording.frames[1:], strict=True):
            if frame.info.get("invalid") in _INVALID:
                broken(
                    f"seed {seed}: {clip(action)} was {frame.info['invalid']!r}: {clip(frame.observation)}",
                    "draw from the legal actions of the current position",
                )


@rule()
def episodes_end(subject: Subject) -> None:
    """Every episode ends within `max_turns` steps, even if the player repeats itself or writes nonsense."""
    for seed in subject.seeds:
        if not subject.recording(seed).ended:
            broken(f"seed {seed}: random play continued after {subject.max_turns} steps", "add a turn limit")
    first = subject.recording(subject.seeds[0]).actions[0]
    for action in (first, JUNK[0]):
        recording = subject.play(subject.fresh(), subject.seeds[0], _always(action))
        if not recording.ended:
            broken(
                f"the episode continued after {subject.max_turns} steps of {clip(action)}",
                "count every step toward the turn limit",
            )
        _check_steps(recording)


@rule()
def reset_is_needed(subject: Subject) -> None:
    """A step before `reset` or after the end of an episode raises ResetNeeded."""
    for seed in subject.seeds:
        env = subject.fresh()  # the previous one may still be in an episode
        recording = subject.recording(seed)
        _expect_reset_needed(env, recording.actions[0], "without a running episode")
        reset(env, seed)
        for action in recording.actions:
            if step(env, action).ended:
                break
        else:
            continue  # not deterministic, so these actions may not end the episode
        _expect_reset_needed(env, recording.actions[-1], "after the end")


@rule()
def unknown_options(subject: Subject) -> None:
    """`reset(options=...)` raises ConfigError for an unknown key, unless options are ignored."""
    if ignores_options(subject):
        skip("reset ignores its options")


@rule(relies_on=("episodes_end",))
def best_return(subject: Subject) -> None:
    """No episode returns more than `max_return`, and the oracle, if any, reaches it."""
    env = subject.fresh()
    if env.max_return is None:
        skip("max_return is None: the best return is not documented")
    played = [subject.recording(seed) for seed in subject.seeds]
    reset(env, subject.seeds[0])
    if env.oracle_action() is None:
        _expect_at_most(env.max_return, played)
        skip("oracle_action() is None: only random play was compared with max_return")
    perfect = [subject.play(env, seed, _oracle) for seed in subject.seeds]
    _expect_at_most(env.max_return, played + perfect)
    reached = []
    for recording in perfect:
        _check_steps(recording)
        invalid = [f.info.get("invalid") for f in recording.frames[1:]]
        if any(kind is not None for kind in invalid):
            broken(f"seed {recording.seed}: oracle actions were {invalid}", "make the oracle play legally")
        reached.append(recording.total_reward >= env.max_return - TOLERANCE)
    if not env.oracle_certain and not any(reached):  # bad luck; a win in any of many episodes is enough
        first = max(subject.seeds) + 1
        more = (subject.play(env, seed, _oracle) for seed in range(first, first + LUCKY_SEEDS))
        reached.append(any(recording.total_reward >= env.max_return - TOLERANCE for recording in more))
    if not (all(reached) if env.oracle_certain else any(reached)):
        returns = {recording.seed: recording.total_reward for recording in perfect}
        broken(
            f"max_return is {env.max_return}, but the oracle earned (by seed) {returns}",
            "fix the oracle or the rewards; set max_return to None if it depends on the episode, or "
            "oracle_certain to False if the best player needs luck",
        )


# -- text -------------------------------------------------------------------------------------


@rule()
def junk_earns_nothing(subject: Subject) -> None:
    """Text without an action never earns more than `format_error_reward`, at the start or later."""
    env = subject.fresh()
    seed = subject.seeds[0]
    for turns in (0, 1):
        for text in JUNK:
            reset(env, seed)
            if turns and step(env, random_action(env)).ended:
                break  # a single-turn environment
            frame = step(env, text)
            if frame.reward > env.format_error_reward + TOLERANCE or frame.info.get("success"):
                broken(
                    f"after {turns} turns, {clip(text)} earned {frame.reward} with info {clip(frame.info)}; "
                    f"format_error_reward is {env.format_error_reward}",
                    _NO_REWARD,
                )


@rule()
def any_text_is_taken(subject: Subject) -> None:
    """No text makes a step raise, return a malformed result, or reward a format error too highly."""
    env = subject.fresh()
    _try_texts(subject, env, nasty_texts(subject.seeds[0], count=100 * len(subject.seeds)))


@rule()
def long_text_is_taken(subject: Subject) -> None:
    """Texts of up to a megabyte are processed in time, and like any other text."""
    env = subject.fresh()
    for size in (10_000, 100_000, 1_000_000):  # from short to long, so that a slow parser is reported early
        _try_texts(subject, env, long_texts(size))


def _try_texts(subject: Subject, env: Env, texts: Iterable[str]) -> None:
    ended = True
    for text in texts:
        if ended:
            reset(env, subject.seeds[0])
        start = time.process_time()  # a busy machine must not fail the environment
        frame = step(env, text)
        seconds = time.process_time() - start
        ended = frame.ended
        if seconds > subject.patience:
            broken(
                f"{clip(text, 60)} took {seconds:.1f} s of CPU time; the limit is {subject.patience} s",
                "read the text in one pass: no nested quantifiers, no search from each opening bracket",
            )
        _check_step(frame)
        if frame.info.get("invalid") == "format" and frame.reward > env.format_error_reward + TOLERANCE:
            broken(
                f"{clip(text)} was a format error but earned {frame.reward}; "
                f"format_error_reward is {env.format_error_reward}",
                _NO_REWARD,
            )


# -- helpers ----------------------------------------------------------------------------------


def ignores_options(subject: Subject) -> bool:
    """Return whether `reset` accepts an unknown option, as an environment does that never reads `options`."""
    unknown: Any = {"no_such_option": 1}
    try:
        subject.fresh().reset(subject.seeds[0], options=unknown)
    except ConfigError:
        return False
    except Exception as error:
        broken(f"options={unknown} raised {error_line(error)}", "raise ConfigError")
    return True


def _always(action: str) -> Callable[[Env], str]:
    return lambda env: action


def _oracle(env: Env) -> str:
    action = env.oracle_action()
    if action is None:
        broken(
            "oracle_action() returned None in mid-episode",
            "return an action until the end of the episode, or never",
        )
    return action


def _expect_at_most(limit: float, recordings: Iterable[Recording]) -> None:
    for recording in recordings:
        if recording.total_reward > limit + TOLERANCE:
            broken(
                f"seed {recording.seed}: the return {recording.total_reward} is above max_return {limit}",
                "correct max_return, or set it to None if it depends on the episode",
            )


def _expect_reset_needed(env: Env, action: str, when: str) -> None:
    try:
        result = env.step(action)
    except ResetNeeded:
        return
    except Exception as error:
        broken(f"step() {when} raised {error_line(error)}", "call self.require_reset() first")
    broken(
        f"step() {when} returned {clip(result)}",
        "call self.require_reset() first in step() and self.end_episode() at every end",
    )


def _check_steps(recording: Recording) -> None:
    for frame in recording.frames[1:]:
        _check_step(frame)


def _check_step(frame: Frame) -> None:
    _check_observation(frame.observation)
    if not isinstance(frame.reward, float) or not math.isfinite(frame.reward):
        broken(f"the reward was {frame.reward!r}", "return a finite float")
    for name in ("terminated", "truncated"):
        value = getattr(frame, name)
        if not isinstance(value, bool):
            broken(f"{name} was {value!r} ({type(value).__name__})", "return a bool")
    if frame.terminated and frame.truncated:
        broken(
            "terminated and truncated were both True",
            "return truncated=True only at a limit, and terminated=True otherwise",
        )
    _check_info(frame.info, ended=frame.ended)


def _check_observation(observation: Any) -> None:
    if isinstance(observation, str):
        return
    if not isinstance(observation, list) or not observation:
        broken(f"the observation was {clip(observation)}", "return a str, or a list of content parts")
    try:
        check_parts(observation)
    except DataError as error:
        broken(f"{error}: {clip(observation)}", "create the parts with gem_core.images")
    _check_json("the observation", observation)


def _check_images(frame: Frame, env: Env) -> None:
    if image_urls(frame.observation) and not env.shows_images:
        broken("the observation contains an image, but shows_images is False", "set shows_images = True")


_INFO_TYPES: dict[str, type] = {
    "prefix": str,
    "suffix": str,
    "success": bool,
    "metrics": dict,
    "use_tool": bool,
    "side_turn": bool,
    "tool_error": str,
    "parsed_action": str,
    "error": str,
}


def _check_info(info: Any, *, ended: bool) -> None:
    if not isinstance(info, dict):
        broken(f"info was {clip(info)}", "return a dict")
    for key, kind in _INFO_TYPES.items():
        if key in info and not isinstance(info[key], kind):
            broken(f"info[{key!r}] was {clip(info[key])}", f"reserved key: use {kind.__name__}")
    if info.get("invalid") not in (None, *_INVALID):
        broken(f"info['invalid'] was {clip(info['invalid'])}", "use None, 'format', 'illegal', or 'length'")
    for name, value in info.get("metrics", {}).items():
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            broken(f"info['metrics'][{name!r}] was {clip(value)}", "metrics must be finite numbers")
    if ("success" in info) != ended:
        broken(
            f"info['success'] was {'missing at the end' if ended else 'present before the end'}",
            "set it in the last step only",
        )
    _check_json("info", info)


def _check_json(name: str, value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        broken(
            f"{name} is not JSON-serializable ({error}): {clip(value)}", "use str, numbers, lists, and dicts"
        )
