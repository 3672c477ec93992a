"""The rule on labels: where an environment has a second solver, the grader agrees with it."""

from __future__ import annotations

import time
from typing import NamedTuple

from gem_core import Env
from gem_lab._checker.rules import rule
from gem_lab._checker.subject import Frame, Subject, broken, clip, random_action, reset, skip, step

LABEL_SEEDS = 100
"""Number of tasks whose labels are compared with the second solver."""
BLOCKING_SEEDS = 20
"""The same for environments that wait for other processes, whose time is not counted."""
LABEL_SECONDS = 5.0
"""Seconds of CPU time after which no further task is compared."""
_OTHERS = 3
"""Number of oracle actions of other tasks that are compared in each task."""
_MANY_TURNS = 1000


class _Last(NamedTuple):
    """The action that ended an episode, the second opinion on it, and the result."""

    action: str
    verdict: bool | None
    frame: Frame


@rule(relies_on=("episodes_end",))
def labels_are_right(subject: Subject) -> None:
    """Where `verify` has an opinion, it accepts the oracle's action, and the grader pays what it accepts."""
    env = subject.fresh()
    if type(env.unwrapped).verify is Env.verify:
        skip("the environment has no second solver: it does not override verify")
    opinions = 0
    earlier: list[str] = []
    end = time.process_time() + LABEL_SECONDS
    for seed in range(subject.seeds[0], subject.seeds[0] + (BLOCKING_SEEDS if env.blocking else LABEL_SEEDS)):
        last = _oracle_ends(env, seed)
        if last is not None:
            opinions += last.verdict is not None
            _expect_agreement(seed, last)
            earlier = [last.action, *earlier[: _OTHERS - 1]]
        for action in (*earlier[last is not None :], None):
            other = _one_step(env, seed, action)
            opinions += other.verdict is not None
            if other.frame.ended:
                _expect_agreement(seed, other)
        if time.process_time() > end:
            break
    if not opinions:
        skip("verify had no opinion on any response")


def _oracle_ends(env: Env, seed: int) -> _Last | None:
    """Return the end of the oracle's episode, each response of which has to pass; None if there is none."""
    reset(env, seed)
    for _ in range(_MANY_TURNS):
        action = env.oracle_action()
        if action is None:
            return None
        verdict = env.verify(action)
        if verdict is False:
            broken(
                f"seed {seed}: verify rejects the oracle's response {clip(action)}",
                "solve the task from the text of the prompt by hand: either the label is wrong, or the task "
                "has no answer, or verify is wrong",
            )
        frame = step(env, action)
        if frame.ended:
            return _Last(action, verdict, frame)
    return None


def _one_step(env: Env, seed: int, action: str | None) -> _Last:
    """Return the result of one action, by default a random one, at the start of an episode."""
    reset(env, seed)
    text = random_action(env) if action is None else action
    return _Last(text, env.verify(text), step(env, text))


def _expect_agreement(seed: int, last: _Last) -> None:
    success = bool(last.frame.info.get("success"))
    if last.verdict is not None and last.verdict != success:
        broken(
            f"seed {seed}: verify calls {clip(last.action)} {'right' if last.verdict else 'wrong'}, but "
            f"info['success'] was {success}",
            "solve the task from the text of the prompt by hand; correct the label, the grader, or verify",
        )
