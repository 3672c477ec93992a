"""Learning curves with the exact policy class: do better gradients learn faster?

The policy is the table of logits itself, and its expected return is exact, so a curve has no noise except
the estimator's.
"""

from __future__ import annotations

import numpy as np

from gem_core._util.seeds import derive_int
from gem_lab.exam._episodes import draw_starts, sample
from gem_lab.exam._exact import expected_return, solve
from gem_lab.exam._inputs import Candidate, Chunk
from gem_lab.exam._measure import Scatter, aggregation_weights
from gem_lab.exam._task import FloatArray, TableTask


def learning_curve(
    task: TableTask,
    candidate: Candidate,
    *,
    steps: int = 60,
    batch_size: int = 64,
    group_size: int = 8,
    gamma: float = 1.0,
    learning_rate: float = 0.05,
    seed: int = 0,
) -> FloatArray:
    """Train the table policy on sampled batches.

    The optimizer is Adam (betas 0.9 and 0.999), so the scale of an estimator has no effect.

    Args:
        task: The task.
        candidate: The estimator.
        steps: Number of updates.
        batch_size: Episodes per update, a multiple of `group_size`.
        group_size: Episodes per group.
        gamma: Discount per turn.
        learning_rate: Step size of Adam.
        seed: Random seed; the estimators share the random stream of a seed.

    Returns:
        float64 (steps + 1,), exact expected return before and after each update.
    """
    random = np.random.default_rng(derive_int(seed, "learning", task.name))
    logits = task.logits.copy()
    mean, square = np.zeros_like(logits), np.zeros_like(logits)
    curve = [expected_return(task, task.policy(logits))]
    for step in range(1, steps + 1):
        policy = task.policy(logits)
        starts = draw_starts(task, batch_size // group_size, group_size, random)
        played = sample(task, policy, starts, random)
        chunk = Chunk(played, batch_size, group_size, solve(task, policy, gamma), random)
        weights = aggregation_weights(played, batch_size, "token-sum")
        slope = Scatter(played, batch_size)(weights * candidate.advantages(chunk.batches()[0], gamma))[0]
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope**2
        scale = np.sqrt(square / (1 - 0.999**step)) + 1e-8
        logits = logits + learning_rate * mean / (1 - 0.9**step) / scale
        curve.append(expected_return(task, task.policy(logits)))
    return np.array(curve)
