"""Sample the gradients of estimators, and compare their expectation with the exact gradient.

All estimators and aggregations see the same batches. The sampled gradients are adjusted with control
variates of known expectation, such as plain REINFORCE. The coefficients of one half of the batches come from
the other half, so the adjustment adds no bias.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gem_core.exam.episodes import Episodes, Path, draw_starts, join_paths, paths_from, sample
from gem_core.exam.exact import gradient, solve
from gem_core.exam.inputs import Candidate, Chunk
from gem_core.exam.task import FloatArray, IntArray, TableTask

AGGREGATIONS = {
    "token-sum": "sum over tokens, divided by the number of episodes",
    "turn-mean": "mean over the tokens of a turn, then over the turns of the batch",
    "episode-mean": "mean over the tokens of an episode, then over the episodes",
    "token-mean": "mean over the tokens of the batch",
}
"""How the loss of the tokens of a batch becomes one number."""

BLOCKS = 64
"""Number of blocks into which the batches are averaged, for intervals and tests."""

CHUNK = 200_000
"""Largest number of turns to play at a time."""

ZERO = 1e-9
"""Relative size below which a bias counts as rounding error."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of one estimator over many batches. K blocks, d parameters.

    Attributes:
        blocks: float64 (K, d), mean of each block of batches; the first half of the blocks is adjusted with
            coefficients from the second half of the batches, and the other way around.
        halves: float64 (2, d), mean of each half of the batches, adjusted with its own coefficients.
        variance: Sum over the parameters of the variance of the gradient of one batch.
        alignment: Mean over the batches of the cosine between the gradient of a batch and the exact one.
    """

    blocks: FloatArray
    halves: FloatArray
    variance: float
    alignment: float

    def extrapolated(self, size: int, other: Gradients, other_size: int) -> Gradients:
        """Return the limit for large batches, if the bias falls as 1/B between the two batch sizes."""
        span = size - other_size
        return Gradients(
            (size * self.blocks - other_size * other.blocks) / span,
            (size * self.halves - other_size * other.halves) / span,
            math.nan,
            math.nan,
        )


@dataclass(frozen=True)
class Bias:
    """The expectation of an estimator, compared with an exact gradient.

    Attributes:
        cosine: Cosine between expectation and exact gradient; 0 if the expectation is 0.
        cosine_low: Lower end of the 95% interval.
        cosine_high: Upper end of the 95% interval.
        bias: Relative bias: norm of the part of the expectation orthogonal to the exact gradient, divided by
            the norm of the expectation. It does not depend on the scale of the estimator; 0 is unbiased.
        bias_low: Lower end of the 95% interval.
        bias_high: Upper end of the 95% interval.
        scale: Factor between the exact gradient and the expectation's component along it.
        p_value: Probability of a bias this large if the estimator is unbiased up to scale.
        norm: Norm of the expectation.
    """

    cosine: float
    cosine_low: float
    cosine_high: float
    bias: float
    bias_low: float
    bias_high: float
    scale: float
    p_value: float
    norm: float


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
) -> tuple[dict[tuple[str, str], Gradients], dict[str, float]]:
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
        Gradients by (estimator, aggregation), and by estimator the correlation between its advantages and the
        exact advantages of the actions, over all turns.
    """
    solution = solve(task, policy, gamma)
    exact = gradient(task, policy).ravel()
    sums: dict[tuple[str, str], list[FloatArray]] = {
        (candidate.name, name): [] for candidate in candidates for name in aggregations
    }
    moments = {candidate.name: np.zeros(6) for candidate in candidates}
    controls = []
    per_chunk = max(1, CHUNK // (batch_size * task.limit))
    for first in range(0, batches, per_chunk):
        count = min(per_chunk, batches - first)
        starts = draw_starts(task, count * batch_size // group_size, group_size, random)
        chunk = Chunk(sample(task, policy, starts, random), batch_size, group_size, solution, random)
        played = chunk.played
        scatter = _Scatter(played, batch_size)
        controls.append(_controls(task, policy, gamma, chunk, scatter))
        weights = {name: aggregation_weights(played, batch_size, name) for name in aggregations}
        true_advantages = played.advantages(solution)
        for candidate in candidates:
            advantages = np.concatenate([candidate.advantages(b, gamma) for b in chunk.batches()])
            moments[candidate.name] += _moments(advantages, true_advantages)
            for name in aggregations:
                sums[candidate.name, name].append(scatter(weights[name] * advantages))
    control = np.concatenate(controls)
    results = {key: _adjusted(np.concatenate(parts), control, exact) for key, parts in sums.items()}
    return results, {name: _correlation(values) for name, values in moments.items()}


def enumerate_gradients(
    task: TableTask,
    policy: FloatArray,
    candidates: Sequence[Candidate],
    *,
    batch_size: int,
    gamma: float,
    aggregations: Sequence[str],
    most: int = 2500,
) -> dict[tuple[str, str], Gradients]:
    """Compute exact expectations: the sum over all possible batches, each one group, of gradient and probability.

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
        Gradients by (estimator, aggregation), without sampling error; empty if there are more than `most`
        batches.
    """
    chosen: list[Path] = []
    weights: list[float] = []
    for start in np.flatnonzero(task.start).tolist():
        paths = paths_from(task, policy, start)
        if paths is None or len(weights) + math.comb(len(paths) + batch_size - 1, batch_size) > most:
            return {}
        for batch in itertools.combinations_with_replacement(range(len(paths)), batch_size):
            orders = math.factorial(batch_size)
            for times in Counter(batch).values():
                orders //= math.factorial(times)
            weights.append(float(task.start[start]) * orders * math.prod(paths[i].probability for i in batch))
            chosen += [paths[i] for i in batch]
    random = np.random.default_rng(0)  # unused: no input is random
    solution = solve(task, policy, gamma)
    chunk = Chunk(join_paths(task, policy, chosen), batch_size, batch_size, solution, random)
    scatter = _Scatter(chunk.played, batch_size)
    results = {}
    for candidate in candidates:
        if "baselines" in candidate.needs:
            continue
        advantages = np.concatenate([candidate.advantages(b, gamma) for b in chunk.batches()])
        for name in aggregations:
            gradients = scatter(aggregation_weights(chunk.played, batch_size, name) * advantages)
            mean = np.einsum("b,bra->ra", np.array(weights), gradients).ravel()
            results[candidate.name, name] = Gradients(
                np.tile(mean, (4, 1)), np.tile(mean, (2, 1)), math.nan, math.nan
            )
    return results


def compare(gradients: Gradients, exact: FloatArray) -> Bias:
    """Compare the expectation of an estimator with an exact gradient.

    The interval is a jackknife over the blocks. The test finds the direction of the bias in one half of the
    batches and tests, in the other half, whether the mean along it is positive, and the other way around; the
    smaller p-value counts twice.

    Args:
        gradients: Gradients of the estimator.
        exact: float64 (R, A), the exact gradient.
    """
    unit = exact.ravel() / np.linalg.norm(exact)
    along = gradients.blocks @ unit
    across = gradients.blocks - along[:, None] * unit
    products = across @ across.T
    off = products - np.diag(np.diag(products))
    count = len(along)
    total, rows = off.sum(), off.sum(1)
    bias2 = total / (count * (count - 1))
    left_bias2 = (total - 2 * rows) / ((count - 1) * (count - 2))
    mean = along.mean()
    left_mean = (count * mean - along) / (count - 1)
    size2 = mean**2 + max(bias2, 0.0)
    if not size2:
        return Bias(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    share = bias2 / size2 if bias2 > ZERO**2 * size2 else 0.0
    error = _spread(left_bias2 / (left_mean**2 + np.maximum(left_bias2, 0.0)))
    error = error if error > ZERO**2 else 0.0
    low, high = (float(np.clip(share + side * 1.96 * error, 0.0, 1.0)) for side in (-1, 1))
    sign = math.copysign(1.0, mean)
    cosines = sorted(sign * math.sqrt(1 - value) for value in (low, high))
    return Bias(
        cosine=sign * math.sqrt(1 - share),
        cosine_low=cosines[0],
        cosine_high=cosines[1],
        bias=math.sqrt(share),
        bias_low=math.sqrt(low),
        bias_high=math.sqrt(high),
        scale=float(mean / np.linalg.norm(exact)),
        p_value=bias_p_value(gradients, unit),
        norm=math.sqrt(size2),
    )


def bias_p_value(gradients: Gradients, unit: FloatArray) -> float:
    """Return the p-value of the test in `compare`.

    Args:
        gradients: Gradients of the estimator.
        unit: float64 (d,), direction of the exact gradient.
    """
    half = len(gradients.blocks) // 2
    parts = gradients.blocks[:half], gradients.blocks[half:]
    across = gradients.halves - np.outer(gradients.halves @ unit, unit)
    size = float(np.linalg.norm(gradients.halves.mean(0)))
    p_values = []
    for direction, test in ((across[0], parts[1]), (across[1], parts[0])):
        length = float(np.linalg.norm(direction))
        if length <= ZERO * size:
            p_values.append(1.0)
            continue
        values = test @ (direction / length)
        error = values.std(ddof=1) / math.sqrt(len(values))
        if error <= ZERO * size:
            p_values.append(float(values.mean() <= ZERO * size))
        else:
            p_values.append(_upper_tail(values.mean() / error, len(values) - 1))
    return min(1.0, 2 * min(p_values))


def aggregation_weights(played: Episodes, batch_size: int, name: str) -> FloatArray:
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


class _Scatter:
    """Sums of ``score * weight`` over the turns of each batch.

    The score of action a in a row with probabilities p is ``onehot(a) - p``, in the row's parameters.
    """

    def __init__(self, played: Episodes, batch_size: int) -> None:
        rows, actions = played.task.shape
        self._policy = played.policy
        self._shape = (len(played.lengths) // batch_size, rows, actions)
        batch = played.episode_of // batch_size
        self._index: IntArray = (batch * rows + played.rows) * actions + played.actions

    def __call__(self, weights: FloatArray) -> FloatArray:
        """Return float64 (batches, rows, actions)."""
        sums = np.bincount(self._index, weights, math.prod(self._shape)).reshape(self._shape)
        return np.asarray(sums - sums.sum(-1, keepdims=True) * self._policy)


def _controls(
    task: TableTask, policy: FloatArray, gamma: float, chunk: Chunk, scatter: _Scatter
) -> FloatArray:
    """Return control variates with expectation 0, float64 (batches, rows, actions, 7).

    They are sums of ``score * weight`` over the turns, minus their known expectation. The last two multiply
    the scores of an episode with what the other episodes of its group or batch earned, which are independent.
    """
    played, size = chunk.played, chunk.batch_size
    episode = played.episode_of
    to_go = played.returns(gamma)
    first = np.cumsum(played.lengths) - played.lengths
    whole = to_go[first]
    values = chunk.values
    after = np.append(values[1:], 0.0)
    after[first + played.lengths - 1] = 0.0  # also after the limit
    temporal = chunk.rewards + gamma * after - values
    excess = whole - values[first]
    sums = np.add.reduceat(to_go - to_go.mean(), first)
    weights = [
        to_go,
        whole[episode],
        temporal,
        np.ones(len(to_go)),
        values,
        (_sum_of_others(excess, chunk.group_size) / max(1, chunk.group_size - 1))[episode],
        (_sum_of_others(sums, size) / np.maximum(1, _sum_of_others(played.lengths.astype(float), size)))[episode],
    ]
    per_turn = gradient(task, policy, gamma, "per turn")
    expectations = [per_turn, gradient(task, policy, gamma, "discounted"), per_turn, 0.0, 0.0, 0.0, 0.0]
    columns = [scatter(w / size) - mean for w, mean in zip(weights, expectations, strict=True)]
    return np.stack(columns, axis=-1)


def _sum_of_others(values: FloatArray, size: int) -> FloatArray:
    """Return, for each episode, the sum over the other episodes of its group of `size` consecutive ones."""
    groups = values.reshape(-1, size)
    return np.asarray((groups.sum(1, keepdims=True) - groups).ravel())


def _adjusted(raw: FloatArray, control: FloatArray, exact: FloatArray) -> Gradients:
    """Adjust the gradients (batches, rows, actions) of all batches with the controls, and average blocks."""
    count = len(raw)
    halves = (slice(0, count // 2), slice(count // 2, count))
    coefficients = [_coefficients(raw[half], control[half]) for half in halves]
    blocks, own = [], []
    for half, mine, other in zip(halves, coefficients, coefficients[::-1], strict=True):
        adjusted = raw[half] - np.einsum("brac,rc->bra", control[half], other)
        flat = adjusted.reshape(len(adjusted), -1)
        blocks += [part.mean(0) for part in np.array_split(flat, min(BLOCKS // 2, len(flat)))]
        own.append((raw[half].mean(0) - np.einsum("rac,rc->ra", control[half].mean(0), mine)).ravel())
    flat = raw.reshape(count, -1)
    sizes = np.linalg.norm(flat, axis=1)
    cosines = np.divide(flat @ exact, sizes, out=np.zeros(count), where=sizes > 0) / np.linalg.norm(exact)
    return Gradients(np.array(blocks), np.array(own), float(flat.var(0).sum()), float(cosines.mean()))


def _coefficients(raw: FloatArray, control: FloatArray) -> FloatArray:
    """Return the least-squares coefficients of the controls in each row, float64 (rows, controls)."""
    x, y = control - control.mean(0), raw - raw.mean(0)
    products = np.einsum("brac,brad->rcd", x, x, optimize=True)
    return np.einsum(
        "rcd,rd->rc",
        np.linalg.pinv(products, rcond=1e-10, hermitian=True),
        np.einsum("brac,bra->rc", x, y, optimize=True),
    )


def _spread(left_out: FloatArray) -> float:
    """Return the jackknife standard error from estimates that leave out one block each."""
    count = len(left_out)
    return math.sqrt((count - 1) / count * float(np.square(left_out - left_out.mean()).sum()))


def _upper_tail(t: float, freedom: int) -> float:
    """Return the upper tail of Student's t, by Wallace's normal approximation (1959)."""
    size = math.sqrt(freedom * math.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return 0.5 * math.erfc(math.copysign(size, t) / math.sqrt(2))


def _moments(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.array([len(x), x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()])


def _correlation(moments: FloatArray) -> float:
    count, x, y, xx, yy, xy = moments / moments[0]
    spread = (xx - x * x) * (yy - y * y)
    return float((xy - x * y) / math.sqrt(spread)) if spread > 0 else 0.0
