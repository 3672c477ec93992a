"""The tasks of the exam, by name.

Add one with `register_task`, as a function that returns a `TableTask`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gem_core._util.registry import Registry
from gem_lab.exam._task import ActionOutcome, TableTask

_tasks: Registry[Callable[[], TableTask]] = Registry("exam task", group="gem_lab.exam")


def register_task(name: str, build: Callable[[], TableTask]) -> None:
    """Make a task available by its name.

    Args:
        name: Name of the task.
        build: Function that returns the task. It must be importable to run in several processes.

    Raises:
        ConfigError: Another task has this name.
    """
    _tasks.register(name, build)


def get_task(name: str) -> TableTask:
    """Return the task of this name.

    Raises:
        UnknownName: No task has this name; the message suggests the closest names.
    """
    return _built(_tasks.get(name))


def list_tasks() -> list[str]:
    """Return the names of the built-in tasks in the order of the documentation, then all others."""
    names = _tasks.names()
    return [*BUILTIN, *(name for name in names if name not in BUILTIN)]


@lru_cache(maxsize=64)
def _built(build: Callable[[], TableTask]) -> TableTask:
    return build()


def stop() -> TableTask:
    """Build a task of six turns in which the agent continues for a small reward, or stops and is graded.

    Every "continue" earns 0.1 and raises the probability of success. An episode that never stops is graded
    after its last turn.
    """
    success = (0.1, 0.2, 0.35, 0.5, 0.6, 0.65, 0.7)
    logits = (0.5, 0.2, 0.0, -0.2, -0.4, -0.6)
    outcomes = {}
    for turn in range(6):
        p, last = success[turn], turn == 5
        outcomes[turn, "stop"] = [ActionOutcome(p, (0.0, 1.0)), ActionOutcome(1 - p, (0.0, 0.0))]
        outcomes[turn, "continue"] = (
            [ActionOutcome(success[6], (0.1, 1.0)), ActionOutcome(1 - success[6], (0.1, 0.0))]
            if last
            else [ActionOutcome(1.0, (0.1, 0.0), turn + 1)]
        )
    return TableTask.from_outcomes(
        "stop", outcomes, {0: 1.0}, limit=6,
        logits={(turn, "continue"): logit for turn, logit in enumerate(logits)},
        description="continue for a small reward, or stop and be graded",
    )  # fmt: skip


def guess(numbers: int = 7, turns: int = 3) -> TableTask:
    """Build GuessTheNumber with a table policy over (low, high).

    Rules and rewards are those of `gem_envs._games.GuessTheNumber`. The policy guesses only numbers that
    are still possible, as a repeated guess would need the whole history as its state. The hidden number is
    part of the state but not of the row; the episodes of a group share it, as with a shared seed.
    """
    outcomes: dict[tuple[Any, Any], list[ActionOutcome]] = {}
    for turn in range(turns):
        for low in range(1, numbers + 1):
            for high in range(low, numbers + 1):
                for number in range(low, high + 1):
                    for action in range(low, high + 1):
                        state = (turn, low, high, number)
                        if action == number:
                            outcomes[state, action] = [ActionOutcome(1.0, 1.0)]
                        elif turn == turns - 1:
                            closeness = 1.0 - abs(action - number) / (numbers - 1)
                            outcomes[state, action] = [ActionOutcome(1.0, closeness)]
                        else:
                            bounds = (action + 1, high) if action < number else (low, action - 1)
                            outcomes[state, action] = [ActionOutcome(1.0, 0.0, (turn + 1, *bounds, number))]
    return TableTask.from_outcomes(
        "guess", outcomes, {(0, 1, numbers, number): 1 / numbers for number in range(1, numbers + 1)},
        limit=turns, row=lambda state: state[1:3], description="GuessTheNumber, policy over (low, high)",
    )  # fmt: skip


def tool() -> TableTask:
    """Build a task in which a tool costs a turn and 0.05, and makes the answer more reliable.

    A tool call has 24 response tokens, an answer has 6. A call fails one time in five. Four turns.
    """
    outcomes = {
        ("question", "answer"): [ActionOutcome(0.3, (0.0, 1.0)), ActionOutcome(0.7, (0.0, 0.0))],
        ("question", "call"): [
            ActionOutcome(0.8, (-0.05, 0.0), "result"),
            ActionOutcome(0.2, (-0.05, 0.0), "question"),
        ],
        ("result", "answer"): [ActionOutcome(0.9, (0.0, 1.0)), ActionOutcome(0.1, (0.0, 0.0))],
        ("result", "call"): [ActionOutcome(1.0, (-0.05, 0.0), "result")],
    }
    return TableTask.from_outcomes(
        "tool", outcomes, {"question": 1.0}, limit=4, tokens={"call": 24, "answer": 6},
        logits={("question", "answer"): 1.0}, description="a tool call costs a turn and helps the answer",
    )  # fmt: skip


def chain(turns: int, *, dense: bool) -> TableTask:
    """Build a chain of turns in which a wrong action may lose the episode, unnoticed until the end.

    A wrong action loses the episode with probability ``2 / turns``. An episode always has all its turns.
    Sparse: reward 1 after the last turn unless lost. Dense: the same return in expectation over the turns,
    ``1 / turns`` for every turn that ends unlost. The policy has eight rows, one per eighth of the chain.

    Args:
        turns: Number of turns, a multiple of 8.
        dense: Whether the reward is spread over the turns.
    """
    risk = 2.0 / turns
    outcomes = {}
    for turn in range(turns):
        for lost in (False, True):
            for action in ("right", "wrong"):
                p_lost = 1.0 if lost else risk * (action == "wrong")
                options = []
                for p, then in ((1 - p_lost, False), (p_lost, True)):
                    if not p:
                        continue
                    reward = 0.0 if then else (1 / turns if dense else float(turn == turns - 1))
                    options.append(ActionOutcome(p, reward, (turn + 1, then) if turn < turns - 1 else None))
                outcomes[(turn, lost), action] = options
    name = "chain-dense" if dense else "chain-sparse"
    return TableTask.from_outcomes(
        name if turns == CHAIN else f"{name}-{turns}", outcomes, {(0, False): 1.0}, limit=turns,
        row=lambda state: state[0] * 8 // turns, key=lambda state: state[0],
        description=f"{turns} turns, reward {'in every turn' if dense else 'after the last'}",
    )  # fmt: skip


CHAIN = 64
"""Turns of the chains in the default set."""


def mixture(scale: float = 10.0) -> TableTask:
    """Build a batch of two tasks, a lock of two turns and one with rewards `scale` times as large.

    Each lock has two turns with three actions; its first turn decides the probabilities of the second. Half
    of the groups play each task, and the model sees which one.
    """
    outcomes = {}
    places = ("first", "good", "bad")
    for name, size in (("small", 1.0), ("large", scale)):
        for action, good in (("a", 0.2), ("b", 0.5), ("c", 0.8)):
            outcomes[(name, "first"), action] = [
                ActionOutcome(good, 0.0, (name, "good")),
                ActionOutcome(1 - good, 0.0, (name, "bad")),
            ]
            for place, p in (("good", good), ("bad", good / 4)):
                outcomes[(name, place), action] = [ActionOutcome(p, size), ActionOutcome(1 - p, 0.0)]
    return TableTask.from_outcomes(
        "mixture", outcomes, {("small", "first"): 0.5, ("large", "first"): 0.5}, limit=2,
        logits={((name, place), "a"): 0.5 for name in ("small", "large") for place in places},
        description=f"two tasks whose rewards differ by a factor of {scale:g}",
    )  # fmt: skip


def slippery() -> TableTask:
    """Build a corridor of five cells with stochastic transitions.

    Each move costs 0.02 and goes the other way with probability 0.2. The right end pays 1, the left end 0.2.
    At most 12 turns.
    """
    outcomes = {}
    for cell in range(1, 6):
        for action, direction in (("left", -1), ("right", 1)):
            options = []
            for p, step in ((0.8, direction), (0.2, -direction)):
                after = cell + step
                pay = {0: 0.2, 6: 1.0}.get(after)
                options.append(
                    ActionOutcome(p, (-0.02, 0.0), after)
                    if pay is None
                    else ActionOutcome(p, (-0.02, pay), None)
                )
            outcomes[cell, action] = options
    return TableTask.from_outcomes(
        "slippery", outcomes, {2: 0.5, 3: 0.5}, limit=12,
        description="a corridor whose moves sometimes go the other way",
    )  # fmt: skip


def bifurcation(turns: int = 8, decisive: tuple[int, ...] = (2, 5)) -> TableTask:
    """Build a task in which only some turns matter, so the credit of every turn is known.

    In a decisive turn, the action "a" keeps the episode on the good branch and "b" leaves it. In all other
    turns, both actions have the same effect: their exact advantage is 0. The reward comes after the last
    turn: 1 on the good branch with probability 0.9, otherwise with probability 0.1. The model sees turn and
    branch.
    """
    outcomes = {}
    for turn in range(turns):
        for good in (True, False):
            for action in ("a", "b"):
                then = good and not (turn in decisive and action == "b")
                p = 0.9 if then else 0.1
                outcomes[(turn, good), action] = (
                    [ActionOutcome(1.0, 0.0, (turn + 1, then))]
                    if turn < turns - 1
                    else [ActionOutcome(p, 1.0), ActionOutcome(1 - p, 0.0)]
                )
    return TableTask.from_outcomes(
        "bifurcation", outcomes, {(0, True): 1.0}, limit=turns,
        description=f"only {len(decisive)} of {turns} turns matter",
    )  # fmt: skip


def truncation(limit: int = 6) -> TableTask:
    """Build a task that a turn limit cuts off.

    "try" succeeds with probability 0.15 and pays 1; "prepare" (at most twice) doubles that probability. An
    episode without success is truncated after `limit` turns without a reward; the policy does not see the
    turn.
    """
    outcomes = {}
    for level in range(3):
        p = 0.15 * 2**level
        outcomes[level, "try"] = [ActionOutcome(p, 1.0), ActionOutcome(1 - p, 0.0, level)]
        outcomes[level, "prepare"] = [ActionOutcome(1.0, 0.0, min(level + 1, 2))]
    return TableTask.from_outcomes(
        "truncation", outcomes, {0: 1.0}, limit=limit,
        description=f"truncated after {limit} turns, which the policy does not see",
    )  # fmt: skip


def chain_sparse() -> TableTask:
    """Build the sparse chain of the default set."""
    return chain(CHAIN, dense=False)


def chain_dense() -> TableTask:
    """Build the dense chain of the default set."""
    return chain(CHAIN, dense=True)


BUILTIN: dict[str, Callable[[], TableTask]] = {
    "stop": stop,
    "guess": guess,
    "tool": tool,
    "chain-sparse": chain_sparse,
    "chain-dense": chain_dense,
    "mixture": mixture,
    "slippery": slippery,
    "bifurcation": bifurcation,
    "truncation": truncation,
}
for _name, _build in BUILTIN.items():
    register_task(_name, _build)
