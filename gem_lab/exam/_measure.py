"""Sample the gradients of estimators, and compare their expectation with the exact gradient.

All estimators and aggregations see the same batches, and their gradients are adjusted with the same control
variates.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gem_lab.exam._bias import Gradients
from gem_lab.exam._controls import Adjustment, control_variates
from gem_lab.exam._episodes import EpisodePath, SampledEpisodes, draw_starts, join_paths, paths_from, sample
from gem_lab.exam._exact import gradient, solve
from gem_lab.exam._inputs import Candidate, Chunk, RewardsRejected
from gem_lab.exam._task import FloatArray, IntArray, TableTask

AGGREGATIONS = {
    "token-sum": "sum over tokens, divided by the number of episodes",
    "turn-mean": "mean over the tokens of a turn, then over the turns of the batch",
    "episode-mean": "mean over the tokens of an episode, then over the episodes",
    "token-mean": "mean over the tokens of the batch",
}
"""Rules by which the losses of a batch's tokens are combined into one number."""

CHUNK = 200_000
"""Largest number of turns to play at a time."""


@dataclass(frozen=True)
class Measured:
    """Gradients of estimators on one task, policy, and batch size.

    Attributes:
        batches: Number of sampled batches; 0 if the expectations are exact.
        gradients: Gradients by (estimator, aggregation).
        credit: Correlation between the advantages and the exact advantages of the actions, over all turns,
            by estimator.
        rejected: Reasons by the names of estimators that do not accept the rewards of the task.
    """

    batches: int
    gradients: dict[tuple[str, str], Gradients]
    credit: dict[str, float]
    rejected: dict[str, str]


def sample_gradients(
    task: TableTask,
    policy: FloatArray,
    candidates: Sequence[Candidate],
    *,
    batch_size: int,
    group_size: int,
    gamma: float,
    batches: int,
    aggregations: Sequence[str],
    random: np.random.Generator,
) -> Measured:
    """Play batches and compute the gradients of all candidates on them.

    Args:
        task: The task.
        policy: float64 (R, A), probabilities of the actions in each row.
        candidates: The estimators.
        batch_size: Episodes per batch, a multiple of `group_size`.
        group_size: Episodes per group; they share the first state.
        gamma: Discount per turn.
        batches: Number of batches, a multiple of twice the number of blocks unless small.
        aggregations: Keys of `AGGREGATIONS`.
        random: Source of all randomness.

    Returns:
        The gradients of all candidates that accept the rewards.
    """
    solution = solve(task, policy, gamma)
    exact = gradient(task, policy).ravel()
    sums: dict[tuple[str, str], list[FloatArray]] = {
        (candidate.name, name): [] for candidate in candidates for name in aggregations
    }
    moments = {candidate.name: np.zeros(6) for candidate in candidates}
    rejected: dict[str, str] = {}
    controls = []
    greedy = any("baselines" in candidate.needs for candidate in candidates)
    per_chunk = max(1, CHUNK // (batch_size * task.limit))
    for first in range(0, batches, per_chunk):
        count = min(per_chunk, batches - first)
        starts = draw_starts(task, count * batch_size // group_size, group_size, random)
        chunk = Chunk(sample(task, policy, starts, random), batch_size, group_size, solution, random)
        played = chunk.played
        scatter = Scatter(played, batch_size)
        controls.append(control_variates(chunk, gamma, scatter, greedy=greedy))
        weights = {name: aggregation_weights(played, batch_size, name) for name in aggregations}
        true_advantages = played.advantages(solution)
        for candidate in candidates:
            if (advantages := _advantages(candidate, chunk, gamma, rejected)) is None:
                continue
            moments[candidate.name] += _moments(advantages, true_advantages)
            for name in aggregations:
                sums[candidate.name, name].append(scatter(weights[name] * advantages))
    adjusted = Adjustment(np.concatenate(controls))
    gradients = {
        key: adjusted(np.concatenate(parts), exact) for key, parts in sums.items() if key[0] not in rejected
    }
    credit = {name: _correlation(values) for name, values in moments.items() if name not in rejected}
    return Measured(batches, gradients, credit, rejected)


def enumerate_gradients(
    task: TableTask,
    policy: FloatArray,
    candidates: Sequence[Candidate],
    *,
    batch_size: int,
    gamma: float,
    aggregations: Sequence[str],
    most: int = 1000,
) -> Measured:
    """Compute exact expectations, as a sum over all possible batches of one group.

    The estimators must not depend on the order of the episodes.

    Args:
        task: The task.
        policy: float64 (R, A), probabilities of the actions in each row.
        candidates: The estimators; those with random inputs (greedy episodes) are left out.
        batch_size: Episodes per batch, and per group.
        gamma: Discount per turn.
        aggregations: Keys of `AGGREGATIONS`.
        most: Largest number of batches.

    Returns:
        Gradients without sampling error; none if there are more than `most` batches.
    """
    chosen: list[EpisodePath] = []
    weights: list[float] = []
    for start in np.flatnonzero(task.start).tolist():
        paths = paths_from(task, policy, start)
        if paths is None or len(weights) + math.comb(len(paths) + batch_size - 1, batch_size) > most:
            return Measured(0, {}, {}, {})
        for batch in itertools.combinations_with_replacement(range(len(paths)), batch_size):
            orders = math.factorial(batch_size)
            for times in Counter(batch).values():
                orders //= math.factorial(times)
            weights.append(float(task.start[start]) * orders * math.prod(paths[i].probability for i in batch))
            chosen += [paths[i] for i in batch]
    random = np.random.default_rng(0)  # unused: no input is random
    solution = solve(task, policy, gamma)
    chunk = Chunk(join_paths(task, policy, chosen), batch_size, batch_size, solution, random)
    scatter = Scatter(chunk.played, batch_size)
    results = {}
    rejected: dict[str, str] = {}
    for candidate in candidates:
        if "baselines" in candidate.needs:
            continue
        if (advantages := _advantages(candidate, chunk, gamma, rejected)) is None:
            continue
        for name in aggregations:
            gradients = scatter(aggregation_weights(chunk.played, batch_size, name) * advantages)
            mean = np.einsum("b,bra->ra", np.array(weights), gradients).ravel()
            results[candidate.name, name] = Gradients(
                np.tile(mean, (4, 1)), np.tile(mean, (2, 1)), math.nan, math.nan
            )
    return Measured(0, results, {}, rejected)


def _advantages(
    candidate: Candidate, chunk: Chunk, gamma: float, rejected: dict[str, str]
) -> FloatArray | None:
    """Return the advantages of all turns; None if the candidate rejects these or earlier rewards."""
    if candidate.name in rejected:
        return None
    try:
        return np.concatenate([candidate.advantages(batch, gamma) for batch in chunk.batches()])
    except RewardsRejected as error:
        rejected[candidate.name] = str(error)
        return None


def aggregation_weights(played: SampledEpisodes, batch_size: int, name: str) -> FloatArray:
    """Return the weight of each turn's ``score * advantage`` in the gradient of its batch, float64 (n,)."""
    episode = played.episode_of
    tokens = played.tokens
    batch = episode // batch_size
    if name == "token-sum":
        return np.full(len(episode), 1.0 / batch_size)
    if name == "turn-mean":
        return 1.0 / (tokens * np.bincount(batch)[batch])
    if name == "episode-mean":
        return 1.0 / (batch_size * np.bincount(episode, tokens)[episode])
    return 1.0 / np.bincount(batch, tokens)[batch]


class Scatter:
    """Sums of ``score * weight`` over the turns of each batch.

    The score of action a in a row with probabilities p is ``onehot(a) - p``, in the row's parameters.
    """

    def __init__(self, played: SampledEpisodes, batch_size: int) -> None:
        rows, actions = played.task.shape
        self._policy = played.policy
        self._shape = (len(played.lengths) // batch_size, rows, actions)
        batch = played.episode_of // batch_size
        self._index: IntArray = (batch * rows + played.rows) * actions + played.actions

    def __call__(self, weights: FloatArray) -> FloatArray:
        """Return float64 (batches, rows, actions)."""
        sums = np.bincount(self._index, weights, math.prod(self._shape)).reshape(self._shape)
        return np.asarray(sums - sums.sum(-1, keepdims=True) * self._policy)


def _moments(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.array([len(x), x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()])


def _correlation(moments: FloatArray) -> float:
    _, x, y, xx, yy, xy = moments / moments[0]
    spread = (xx - x * x) * (yy - y * y)
    return float((xy - x * y) / math.sqrt(spread)) if spread > 0 else 0.0
