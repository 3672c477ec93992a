"""`TableTask`: a small multi-turn task with known dynamics, written as a table of outcomes.

    outcomes = {
        ("start", "search"): [ActionOutcome(0.8, -0.05, "found"), ActionOutcome(0.2, -0.05, "start")],
        ("start", "answer"): [ActionOutcome(0.3, 1.0), ActionOutcome(0.7, 0.0)],
        ("found", "answer"): [ActionOutcome(0.9, 1.0), ActionOutcome(0.1, 0.0)],
    }
    task = TableTask.from_outcomes("lookup", outcomes, {"start": 1.0}, limit=4)

The policy is a softmax over the actions of each row. A row is an observation of the model; several states may
share one row, such as the states of a game that differ only in the hidden number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gem_core._util.checks import check_int, check_number, expected
from gem_core.errors import ConfigError

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

END = -1
"""Successor of an outcome that ends the episode."""


@dataclass(frozen=True)
class ActionOutcome:
    """A possible outcome of an action.

    Attributes:
        probability: Probability of this outcome.
        reward: Reward of the turn: a number, or one number per component of the reward.
        next: State of the next turn; None if the episode ends.
    """

    probability: float
    reward: float | Sequence[float] = 0.0
    next: Hashable | None = None


Outcomes: TypeAlias = Mapping[tuple[Any, Any], Sequence[ActionOutcome]]
"""Outcomes by (state, action). The actions of a state are the ones listed."""


@dataclass(frozen=True, eq=False)
class TableTask:
    """A finite-horizon decision process. S states, R rows, A actions, K outcomes, C reward components.

    Attributes:
        name: Name in tables and in the names of random streams.
        limit: Number of turns after which an episode is truncated, without a further reward.
        start: float64 (S,), probability of each first state. The episodes of a group share it.
        probability: float64 (S, A, K), probability of each outcome.
        next_state: int64 (S, A, K), state after the outcome; -1 if the episode ends.
        rewards: float64 (S, A, K, C), components of the reward of the turn; the reward is their sum.
        rows: int64 (S,), row of the policy that acts in a state.
        allowed: bool (R, A), actions that exist in a row.
        logits: float64 (R, A), logits of the initial policy.
        tokens: float64 (S, A), response tokens of an action.
        keys: int64 (S,), state key for estimators that compare turns in equal states.
        states: Names of the states.
        actions: Names of the actions.
        description: One-line description for listings.
    """

    name: str
    limit: int
    start: FloatArray
    probability: FloatArray
    next_state: IntArray
    rewards: FloatArray
    rows: IntArray
    allowed: NDArray[np.bool_]
    logits: FloatArray
    tokens: FloatArray
    keys: IntArray
    states: tuple[Any, ...]
    actions: tuple[Any, ...]
    description: str = ""
    reward: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward", self.rewards.sum(-1))

    @classmethod
    def from_outcomes(
        cls,
        name: str,
        outcomes: Outcomes,
        start: Mapping[Any, float],
        *,
        limit: int,
        row: Callable[[Any], Hashable] = lambda state: state,
        key: Callable[[Any], Hashable] | None = None,
        logits: Mapping[tuple[Any, Any], float] | None = None,
        tokens: Mapping[Any, float] | None = None,
        description: str = "",
    ) -> TableTask:
        """Build a task from its outcomes.

        Args:
            name: Name in tables.
            outcomes: Outcomes by (state, action).
            start: Probability of each first state.
            limit: Number of turns after which an episode is truncated.
            row: Function that maps a state to the model's observation; states with equal values share a row
                of the policy, and must have the same actions.
            key: Maps a state to its state key; None uses the row.
            logits: Initial logits by (row, action); 0 where missing.
            tokens: Response tokens by action; 1 where missing.
            description: One-line description for listings.

        Raises:
            ConfigError: Probabilities do not sum to 1, a successor has no outcomes, or states that share a
                row have different actions.
        """
        check_int("limit", limit, 1)
        states = tuple(dict.fromkeys(state for state, _ in outcomes))
        actions = tuple(dict.fromkeys(action for _, action in outcomes))
        index = {state: index for index, state in enumerate(states)}
        column = {action: index for index, action in enumerate(actions)}
        _check_outcomes(outcomes, start, index)
        row_names = list(dict.fromkeys(map(row, states)))
        rows = np.array([row_names.index(row(state)) for state in states])
        key_names = list(dict.fromkeys(map(key or row, states)))
        keys = np.array([key_names.index((key or row)(state)) for state in states])

        branches = max(map(len, outcomes.values()))
        components = max(np.size(o.reward) for options in outcomes.values() for o in options)
        shape = (len(states), len(actions), branches)
        probability, next_state = np.zeros(shape), np.full(shape, END)
        rewards = np.zeros((*shape, components))
        listed = np.zeros(shape[:2], dtype=bool)
        for (state, action), options in outcomes.items():
            at = index[state], column[action]
            listed[at] = True
            for choice, outcome in enumerate(options):
                probability[at][choice] = outcome.probability
                next_state[at][choice] = END if outcome.next is None else index[outcome.next]
                values = np.ravel(outcome.reward)
                rewards[at][choice][: len(values)] = values
        allowed = np.zeros((len(row_names), len(actions)), dtype=bool)
        allowed[rows] = listed
        if (different := (listed != allowed[rows]).any(1)).any():
            state = states[int(different.argmax())]
            raise ConfigError(
                f"task {name!r}: state {state!r} has other actions than another state of its row"
            )
        initial = np.zeros(allowed.shape)
        for (row_name, action), value in (logits or {}).items():
            initial[row_names.index(row_name), column[action]] = value
        lengths = np.array([float((tokens or {}).get(action, 1.0)) for action in actions])
        first = np.array([float(start.get(state, 0.0)) for state in states])
        return cls(
            name, limit, first, probability, next_state, rewards, rows, allowed, initial,
            np.tile(lengths, (len(states), 1)), keys, states, actions, description,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and actions: the shape of a policy and of a gradient."""
        return self.logits.shape[0], self.logits.shape[1]

    def policy(self, logits: FloatArray | None = None) -> FloatArray:
        """Return the probabilities of the actions in each row.

        Args:
            logits: float64 (R, A); None for the initial policy.

        Returns:
            float64 (R, A), 0 where an action does not exist.
        """
        masked = np.where(self.allowed, self.logits if logits is None else logits, -np.inf)
        weights = np.exp(masked - masked.max(1, keepdims=True))
        return np.asarray(weights / weights.sum(1, keepdims=True))


def _check_outcomes(outcomes: Outcomes, start: Mapping[Any, float], index: Mapping[Any, int]) -> None:
    if not outcomes:
        raise expected("outcomes", outcomes, "outcomes of at least one state")
    for at, options in outcomes.items():
        for option in options:
            check_number(f"probability of {at}", option.probability, 0, 1)
            if option.next is not None and option.next not in index:
                raise ConfigError(
                    f"{at} leads to {option.next!r}, which has no outcomes; add them, or use "
                    "next=None for the end"
                )
        total = sum(option.probability for option in options)
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ConfigError(f"the probabilities of the outcomes of {at} sum to {total:g}: expected 1")
    for state in start:
        if state not in index:
            raise ConfigError(f"the first state {state!r} has no outcomes; add them")
    total = sum(start.values())
    if not math.isclose(total, 1.0, abs_tol=1e-9):
        raise ConfigError(f"the probabilities of the first states sum to {total:g}: expected 1")
