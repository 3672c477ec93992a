"""The expectation of an estimator, compared with an exact gradient: relative bias, interval, and test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gem_lab.exam._task import FloatArray

ZERO = 1e-9
"""Relative size below which a bias counts as rounding error."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of one estimator over many batches. K blocks, d parameters.

    Attributes:
        blocks: float64 (K, d), mean of each block of batches; the first half of the blocks is adjusted with
            coefficients from the second half of the batches, and vice versa.
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


def compare(gradients: Gradients, exact: FloatArray) -> Bias:
    """Compare the expectation of an estimator with an exact gradient.

    The interval is a jackknife over the blocks. The test finds the direction of the bias in one half of the
    batches and tests, in the other half, whether the mean along it is positive, and vice versa; the result is
    twice the smaller p-value.

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


def _spread(left_out: FloatArray) -> float:
    """Return the jackknife standard error from estimates that leave out one block each."""
    count = len(left_out)
    return math.sqrt((count - 1) / count * float(np.square(left_out - left_out.mean()).sum()))


def _upper_tail(t: float, freedom: int) -> float:
    """Return the upper tail of Student's t, by Wallace's normal approximation (1959)."""
    size = math.sqrt(freedom * math.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return 0.5 * math.erfc(math.copysign(size, t) / math.sqrt(2))
