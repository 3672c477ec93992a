"""Control variates: quantities of a batch with a known expectation, which take noise out of the gradients.

Every control is a sum of ``score * weight`` over the turns of a batch, minus its exact expectation. Where an
estimator is a combination of controls (REINFORCE, or a return minus something that is independent of the
episode), its adjusted gradient has no noise left, and the exam only checks its implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gem_lab.exam._bias import Gradients
from gem_lab.exam._exact import gradient
from gem_lab.exam._inputs import Chunk
from gem_lab.exam._task import FloatArray

BLOCKS = 64
"""Number of blocks into which the batches are averaged, for intervals and tests."""

PER_ROW = 7
"""Number of controls, the first ones, that have coefficients for each row of the policy."""

PRIOR = 10.0
"""Weight, in observations, of the assumption that a row needs no separate coefficients, so that a rarely
visited row gets none."""

LAMBDA = 0.95
"""Decay of the sum of temporal differences that is a control; the default of `gem_core.advantages.gae`."""


def control_variates(
    chunk: Chunk, gamma: float, scatter: Callable[[FloatArray], FloatArray], *, greedy: bool
) -> FloatArray:
    """Return control variates with expectation 0.

    Args:
        chunk: Batches.
        gamma: Discount per turn.
        scatter: Sums ``score * weight`` over the turns of each batch; see `measure.Scatter`.
        greedy: Whether the return of a greedy episode from the same state is one of the weights.

    Returns:
        float64 (batches, rows, actions, controls).
    """
    played, size = chunk.played, chunk.batch_size
    task, policy = played.task, played.policy
    lengths = played.lengths.astype(np.float64)
    episode = played.episode_of
    to_go = played.returns(gamma)
    first = np.cumsum(played.lengths) - played.lengths
    whole = to_go[first]
    values = chunk.values
    after = np.append(values[1:], 0.0)
    after[first + played.lengths - 1] = 0.0  # also after the limit
    temporal = chunk.rewards + gamma * after - values
    visits = chunk.solution.visits
    level = float((visits * chunk.solution.values[:-1, :-1]).sum() / visits.sum())
    sums = np.add.reduceat(to_go - level, first)
    per_turn, discounted = (gradient(task, policy, gamma, kind) for kind in ("per turn", "discounted"))
    nothing = np.zeros(task.shape)
    # An episode's scores depend neither on the rewards of other episodes nor on its own earlier rewards.
    controls = [
        (to_go, per_turn),
        (whole[episode], discounted),
        (temporal, per_turn),
        (np.ones(len(to_go)), nothing),
        (values, nothing),
        (_mean_of_others(whole - values[first], chunk.group_size)[episode], nothing),
        ((_sum_of_others(sums, size) / np.maximum(1, _sum_of_others(lengths, size)))[episode], nothing),
        (values[first][episode], nothing),
        (played.suffix_sums(temporal, gamma * LAMBDA), per_turn),
        (_mean_of_others(whole, size)[episode], nothing),
        (_returns_of_others(chunk, to_go), nothing),
    ]
    if greedy:
        controls.append((chunk.baselines[episode], nothing))
    return np.stack([scatter(weight / size) - mean for weight, mean in controls], axis=-1)


class Adjustment:
    """Adjusts gradients with controls.

    The coefficients minimize the variance in one half of the batches and are used in the other half, so the
    adjustment adds no bias. All controls have one coefficient for all rows of the policy; the first
    `PER_ROW` have a further coefficient for each row.

    Args:
        control: float64 (batches, rows, actions, controls), with expectation 0.
    """

    def __init__(self, control: FloatArray) -> None:
        half = len(control) // 2
        self._halves = [_Half.of(part.transpose(1, 0, 2, 3)) for part in (control[:half], control[half:])]

    def __call__(self, raw: FloatArray, exact: FloatArray) -> Gradients:
        """Adjust the gradients of all batches, and average them over blocks.

        Args:
            raw: float64 (batches, rows, actions).
            exact: float64 (rows * actions,), the exact gradient.
        """
        _, rows, actions = raw.shape
        half = len(raw) // 2
        parts = [part.transpose(1, 0, 2) for part in (raw[:half], raw[half:])]
        coefficients = [fit.coefficients(part) for fit, part in zip(self._halves, parts, strict=True)]
        blocks, own = [], []
        for fit, part, mine, other in zip(self._halves, parts, coefficients, coefficients[::-1], strict=True):
            adjusted = part - (fit.controls @ other[..., None]).reshape(part.shape)
            flat = adjusted.transpose(1, 0, 2).reshape(-1, rows * actions)
            blocks += [block.mean(0) for block in np.array_split(flat, min(BLOCKS // 2, len(flat)))]
            own.append((part.mean(1) - (fit.means @ mine[..., None])[..., 0]).ravel())
        flat = raw.reshape(len(raw), -1)
        sizes = np.linalg.norm(flat, axis=1)
        scale = sizes * np.linalg.norm(exact)
        cosines = np.divide(flat @ exact, scale, out=np.zeros(len(raw)), where=sizes > 0)
        return Gradients(np.array(blocks), np.array(own), float(flat.var(0).sum()), float(cosines.mean()))


@dataclass(frozen=True, eq=False)
class _Half:
    """Half of the batches, n. R rows, A actions, K controls.

    Attributes:
        controls: float64 (R, n * A, K).
        means: float64 (R, A, K), over the batches.
        centered: float64 (R, n * A, K), without the means.
        products: float64 (R, K, K).
        pooled: float64 (K, K), inverse of the sum of the products over rows.
        by_row: float64 (R, PER_ROW, PER_ROW), inverse of the products of the first controls, with the prior.
    """

    controls: FloatArray
    means: FloatArray
    centered: FloatArray
    products: FloatArray
    pooled: FloatArray
    by_row: FloatArray

    @classmethod
    def of(cls, control: FloatArray) -> _Half:
        """Prepare the controls (R, n, A, K)."""
        flat = (len(control), -1, control.shape[-1])
        means = control.mean(1)
        centered = (control - means[:, None]).reshape(flat)
        products = centered.transpose(0, 2, 1) @ centered
        energy = np.diagonal(products.sum(0))[:PER_ROW]
        prior = PRIOR * energy / max(1, int(np.count_nonzero(centered[..., 0])))
        return cls(
            control.reshape(flat),
            means,
            centered,
            products,
            _inverse(products.sum(0)),
            _inverse(products[:, :PER_ROW, :PER_ROW] + np.diag(prior)),
        )

    def coefficients(self, part: FloatArray) -> FloatArray:
        """Return the least-squares coefficients for gradients (R, n, A), float64 (R, K)."""
        y = (part - part.mean(1, keepdims=True)).reshape(len(part), -1, 1)
        shared = (self.centered.transpose(0, 2, 1) @ y)[..., 0]
        pooled = self.pooled @ shared.sum(0)
        rest = (shared - self.products @ pooled)[:, :PER_ROW]
        coefficients = np.tile(pooled, (len(part), 1))
        coefficients[:, :PER_ROW] += (self.by_row @ rest[..., None])[..., 0]
        return coefficients


def _inverse(products: FloatArray) -> FloatArray:
    """Return the pseudoinverse of symmetric matrices, after scaling their diagonals to 1."""
    sizes = np.sqrt(np.diagonal(products, axis1=-2, axis2=-1))
    scale = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    scales = scale[..., :, None] * scale[..., None, :]
    return np.asarray(np.linalg.pinv(products * scales, rcond=1e-10, hermitian=True) * scales)


def _sum_of_others(values: FloatArray, size: int) -> FloatArray:
    """Return, for each episode, the sum over the other episodes of its group of `size` consecutive ones."""
    groups = values.reshape(-1, size)
    return np.asarray((groups.sum(1, keepdims=True) - groups).ravel())


def _mean_of_others(values: FloatArray, size: int) -> FloatArray:
    return _sum_of_others(values, size) / max(1, size - 1)


def _returns_of_others(chunk: Chunk, to_go: FloatArray) -> FloatArray:
    """Return, for each turn, the mean return from there on of the others in the group; 0 after their end."""
    played = chunk.played
    table = np.zeros((len(played.lengths), int(played.lengths.max())))
    table[played.episode_of, played.turns] = to_go
    groups = table.reshape(-1, chunk.group_size, table.shape[1])
    others = (groups.sum(1, keepdims=True) - groups).reshape(table.shape)
    return np.asarray(others[played.episode_of, played.turns] / max(1, chunk.group_size - 1))
