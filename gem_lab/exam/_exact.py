"""Exact values and gradients of a table task, by dynamic programming.

With ``G_t = r_t + gamma * G_(t+1)`` and the exact advantage ``A_t(s, a) = E[G_t | s, a] - E[G_t | s]``, the
gradients of `Reference` are

- "return": the gradient of the expected sum of rewards, which is what evaluations report;
- "discounted": the gradient of ``E[G_0]``, which is ``E[sum_t gamma^t * score_t * A_t]``;
- "per turn": ``E[sum_t score_t * A_t]``, which estimators with a discounted return per turn estimate. Without
  the factor ``gamma^t`` it is not the gradient of any function (Nota and Thomas 2020, arXiv 1906.07073).

With ``gamma = 1``, all three are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from gem_lab.exam._task import FloatArray, TableTask

Reference: TypeAlias = Literal["return", "discounted", "per turn"]


@dataclass(frozen=True, eq=False)
class Solution:
    """Exact quantities of a task under one policy, with T turns, S states, and A actions.

    Attributes:
        expected_return: ``E[G_0]``.
        values: float64 (T + 1, S + 1), expected return from a state in a turn; 0 in the last row, after the
            limit, and in the last column, after the end of an episode.
        advantages: float64 (T, S, A), exact advantage of an action.
        visits: float64 (T, S), probability of being in a state in a turn.
    """

    expected_return: float
    values: FloatArray
    advantages: FloatArray
    visits: FloatArray


def solve(task: TableTask, policy: FloatArray, gamma: float = 1.0) -> Solution:
    """Compute values, advantages, and visits.

    Args:
        task: The task.
        policy: float64 (R, A), probabilities of the actions in each row.
        gamma: Discount per turn.
    """
    states, actions, _ = task.probability.shape
    chosen = policy[task.rows]
    reward = (task.probability * task.reward).sum(-1)
    values = np.zeros((task.limit + 1, states + 1))
    advantages = np.zeros((task.limit, states, actions))
    for turn in reversed(range(task.limit)):
        action_values = reward + gamma * (task.probability * values[turn + 1][task.next_state]).sum(-1)
        values[turn, :-1] = (chosen * action_values).sum(-1)
        advantages[turn] = action_values - values[turn, :-1, None]
    flow = chosen[:, :, None] * task.probability
    visits = np.zeros((task.limit, states))
    visits[0] = task.start
    successors = (task.next_state % (states + 1)).ravel()  # the end is the last index
    for turn in range(1, task.limit):
        moved = np.bincount(successors, (visits[turn - 1][:, None, None] * flow).ravel(), states + 1)
        visits[turn] = moved[:-1]
    return Solution(float(task.start @ values[0, :-1]), values, advantages, visits)


def expected_return(task: TableTask, policy: FloatArray, gamma: float = 1.0) -> float:
    """Return the expected (discounted) return of a policy."""
    return solve(task, policy, gamma).expected_return


def gradient(
    task: TableTask, policy: FloatArray, gamma: float = 1.0, reference: Reference = "return"
) -> FloatArray:
    """Compute an exact gradient with respect to the logits.

    Args:
        task: The task.
        policy: float64 (R, A), probabilities of the actions in each row.
        gamma: Discount per turn; "return" ignores it.
        reference: Kind of gradient; see the docstring of this module.

    Returns:
        float64 (R, A).
    """
    solution = solve(task, policy, 1.0 if reference == "return" else gamma)
    weights = np.ones(task.limit)
    if reference == "discounted":
        weights = np.power(gamma, np.arange(task.limit))
    return _project(task, policy, solution, weights)


def _project(task: TableTask, policy: FloatArray, solution: Solution, weights: FloatArray) -> FloatArray:
    """Return ``sum_t weights_t E[score_t * A_t]``, float64 (R, A)."""
    by_state = np.einsum("ts,tsa->sa", weights[:, None] * solution.visits, solution.advantages)
    by_row = np.zeros(task.shape)
    np.add.at(by_row, task.rows, by_state)
    return np.asarray(by_row * policy)


STAGES = {"initial": 0.0, "halfway": 0.5, "late": 0.9}
"""Stages of learning: the share of the improvement in expected return that the policy has made."""


def policies_at(
    task: TableTask, stages: Sequence[str], *, steps: int = 400, step_size: float = 0.3
) -> list[FloatArray]:
    """Return the policies at some stages of learning, by exact gradient ascent from the initial policy.

    Every step moves the logits by `step_size` along the exact gradient of the expected return. The
    improvement is measured against the best policy of `steps` steps.

    Args:
        task: The task.
        stages: Keys of `STAGES`.
        steps: Largest number of steps.
        step_size: Euclidean length of a step.

    Returns:
        float64 (R, A) for each stage, probabilities of the actions in each row.
    """
    logits = task.logits.copy()
    if not any(STAGES[stage] for stage in stages):
        return [task.policy(logits) for _ in stages]
    path = []
    for _ in range(steps):
        policy = task.policy(logits)
        solution = solve(task, policy)
        path.append((solution.expected_return, policy))
        slope = _project(task, policy, solution, np.ones(task.limit))
        size = float(np.linalg.norm(slope))
        if size < 1e-6:
            break
        logits = logits + step_size * slope / size
    first, best = path[0][0], max(value for value, _ in path)
    thresholds = [first + STAGES[stage] * (best - first) for stage in stages]
    return [next(policy for value, policy in path if value >= threshold) for threshold in thresholds]
