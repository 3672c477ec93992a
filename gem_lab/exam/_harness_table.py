"""The table of the harnesses: expected gradients of several credits, compared with the exact gradient.

Rows that are counted as episodes are biased, and may have the wrong sign: in `long_success`, the better
action is unlearned, because its successes have more rows than its failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gem_lab.exam._harnesses import (
    Credit,
    Play,
    ToyHarness,
    by_independent_returns,
    by_returns,
    by_row,
    episode_credit,
    exact_gradient,
    expected_gradient,
    paths,
    scores,
    weighted,
    without_dropped,
)
from gem_lab.exam._task import FloatArray

LOGITS = {
    ("question", "think"): 0.3,
    ("after think", "right"): 0.2,
    ("task", "delegate"): 0.4,
    ("sub-agent", "careful"): -0.3,
    ("begin", "long"): 0.5,
    ("summary", "full"): 0.1,
    ("ask", "malformed"): 0.2,
}
"""The policy on which the table is computed; all other logits are 0."""


def rewritten(play: Play) -> None:
    """The template drops the thinking of an earlier turn, so a turn after thinking begins a row."""
    first = play.sample("question", "think", "plain", tokens=4)
    row = int(first == "think")
    second = play.sample(f"after {first}", "right", "wrong", row=row, tokens=2)
    play.pay(float(play.chance(0.8 if second == "right" else 0.3)))


def sub_agent(play: Play) -> None:
    """The policy may delegate to a sub-agent, which has a row and a reward of its own."""
    found = "nothing"
    if play.sample("task", "solo", "delegate", tokens=2) == "delegate":
        play.pay(-0.05)
        style = play.sample("sub-agent", "careful", "sloppy", row=1, thread=1, tokens=6)
        play.pay(0.02)
        play.link(1, called_by=0, returns_to=0)
        found = "good" if play.chance(0.9 if style == "careful" else 0.4) else "bad"
    last = play.sample(f"end with {found}", "yes", "no")
    play.pay(float(play.chance({"nothing": 0.5, "good": 0.9, "bad": 0.2}[found] if last == "yes" else 0.45)))


def compaction(play: Play) -> None:
    """A long history is summarized by a call of the policy, and the episode goes on from the summary."""
    state = "short"
    long = play.sample("begin", "short", "long", tokens=5) == "long"
    if long:
        summary = play.sample("summary", "full", "terse", row=1, thread=1, tokens=3)
        play.link(1, called_by=0, returns_to=2)
        state = "kept" if play.chance(0.8 if summary == "full" else 0.3) else "lost"
    last = play.sample(f"end {state}", "a", "b", row=2 if long else 0, tokens=2)
    play.pay(float(play.chance({"short": 0.4, "kept": 0.9, "lost": 0.1}[state] if last == "a" else 0.3)))


def parallel(play: Play) -> None:
    """One turn calls two sub-agents at once; each has a reward, and the end needs both."""
    play.sample("plan", "call both", tokens=2)
    good = 0
    for thread in (1, 2):
        found = play.sample(f"sub-agent {thread}", "x", "y", row=thread, thread=thread, tokens=2)
        play.pay(0.3 * (found == "x"))
        play.link(thread, called_by=0, returns_to=0)
        good += play.chance(0.7 if found == "y" else 0.2)
    last = play.sample(f"merge {good}", "u", "v")
    play.pay(float(play.chance(0.3 * good + (0.3 if last == "u" else 0.1))))


def shared_sandbox(play: Play) -> None:
    """The same, but what the first sub-agent leaves behind decides what the second one can do."""
    play.sample("plan", "call both", tokens=2)
    first = play.sample("sub-agent 1", "clean", "mess", row=1, thread=1, tokens=2)
    play.pay(0.2 * (first == "mess"))
    play.link(1, called_by=0, returns_to=0)
    play.sample("sub-agent 2", "x", "y", row=2, thread=2, tokens=2)
    play.pay(float(play.chance(0.8 if first == "clean" else 0.3)))
    play.link(2, called_by=0, returns_to=0)
    play.sample("merge", "done")


def retry(play: Play) -> None:
    """A malformed answer is rejected, and the policy is asked again, at most three times."""
    answers = 0
    while (answer := play.sample("ask", "good", "poor", "malformed", row=answers, tokens=2)) == "malformed":
        answers += 1
        if answers == 3:
            break
    last = len(play.path.choices) - 1
    for attempt in range(last):  # each rejected attempt is a thread, which the next answer replaces
        play.path.threads[attempt] = attempt + 1
        play.path.dropped.add(attempt)
        play.link(attempt + 1, called_by=None, returns_to=attempt + 1)
    play.pay(float(play.chance(0.7)) if answer == "good" else 0.2 * (answer == "poor"))


def long_success(play: Play) -> None:
    """A works half the time, after four rewrites of the history; B works in 40 % of episodes, at once."""
    if play.sample("choice", "A", "B", tokens=2) == "B":
        play.pay(float(play.chance(0.4)))
    elif play.chance(0.5):
        for row in range(4):
            play.sample(f"step {row}", "go on", row=row + 1, tokens=2)
        play.pay(1.0)


HARNESSES: dict[str, tuple[ToyHarness, int]] = {
    "rewritten": (rewritten, 3),
    "sub-agent": (sub_agent, 2),
    "compaction": (compaction, 2),
    "parallel": (parallel, 2),
    "shared sandbox": (shared_sandbox, 2),
    "retry": (retry, 2),
    "long success": (long_success, 2),
}
"""The harnesses with the size of their groups."""

CREDITS: dict[str, Credit] = {
    "returns": by_returns,
    "returns, threads independent": by_independent_returns,
    "returns cut at rows": by_row("reinforce", "row"),
    "rloo": episode_credit("rloo"),
    "rloo, rows as episodes": by_row("rloo", "episode"),
    "dr_grpo, rows as episodes": by_row("dr_grpo", "episode"),
    "dr_grpo, rewards of the row": by_row("dr_grpo", "row"),
    "rloo, mean over episodes": weighted(episode_credit("rloo"), "episode"),
    "rloo, mean over rows": weighted(episode_credit("rloo"), "row"),
    "returns, rejected attempts dropped": without_dropped(by_returns),
    "rloo, rejected attempts dropped": without_dropped(episode_credit("rloo")),
}


@dataclass(frozen=True)
class HarnessComparison:
    """An expected gradient, compared with the exact one.

    Attributes:
        harness: Key of `HARNESSES`.
        credit: Key of `CREDITS`.
        cosine: Cosine between the two.
        scale: Factor between the exact gradient and the component of the other along it.
        off: Norm of the rest, divided by the norm of the exact gradient.
        least: The logit with the smallest ratio of expected to exact gradient: below 0, it has the wrong
            sign.
    """

    harness: str
    credit: str
    cosine: float
    scale: float
    off: float
    least: float


def measure(harnesses: Mapping[str, tuple[ToyHarness, int]] = HARNESSES) -> Iterator[HarnessComparison]:
    """Yield the comparisons of each harness with each credit.

    Args:
        harnesses: Harnesses with the size of their groups.
    """
    for name, (harness, size) in harnesses.items():
        found = paths(harness, LOGITS)
        turn_scores = scores(found, LOGITS)
        exact = exact_gradient(found, turn_scores)
        for label, credit in CREDITS.items():
            if label.endswith("dropped") and not any(path.dropped for path in found):
                continue
            yield _compare(name, label, expected_gradient(found, turn_scores, credit, size), exact)


def _compare(harness: str, credit: str, found: FloatArray, exact: FloatArray) -> HarnessComparison:
    square = float(exact @ exact)
    scale = float(found @ exact) / square
    cosine = float(found @ exact) / (float(np.linalg.norm(found)) * square**0.5)
    off = float(np.linalg.norm(found - scale * exact)) / square**0.5
    known = np.abs(exact) > 1e-9
    return HarnessComparison(harness, credit, cosine, scale, off, float((found[known] / exact[known]).min()))
