"""Mergeable statistics of returns, which data-parallel ranks exchange instead of the returns.

The statistics are count, mean, and M2 (the sum of squared deviations from the mean), in float64. They are
merged by the formula of Chan, Golub, and LeVeque (1979), which never subtracts large sums from each other, so
returns of 1e8 +- 1 keep their standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gem_core._util.checks import check_choice
from gem_core.advantages._inputs import episode_arrays, real
from gem_core.errors import ConfigError, NonFiniteReward

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class ReturnStats:
    """Statistics of a set of returns.

    Attributes:
        count: Number of returns: one per turn, whatever its length in tokens, unless turns are weighted.
        mean: Mean of the returns; 0.0 if there are none.
        m2: Sum of squared deviations from the mean.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @classmethod
    def from_returns(
        cls, returns: FloatArray | Sequence[ArrayLike], weights: FloatArray | None = None
    ) -> ReturnStats:
        """Compute the statistics of all turns.

        Args:
            returns: One return per turn: a one-dimensional array of all turns, or a list with one sequence
                per episode.
            weights: How often each turn counts, in the same order as the returns. The count is the sum of
                the weights, rounded. None counts every turn once.

        Raises:
            ConfigError: `returns` is a tensor or an array of tokens.
            NonFiniteReward: A return is not finite, or its square overflows float64.
        """
        parts = episode_arrays("returns", [returns] if isinstance(returns, np.ndarray) else returns)
        values = np.concatenate(parts) if parts else np.zeros(0)
        if not values.size:
            return cls()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(values, weights=weights)
            deviations = values - mean
            # The rounding error of the mean matters if the mean is large.
            correction = np.average(deviations, weights=weights)
            squares = np.square(deviations - correction)
            m2 = squares.sum() if weights is None else (squares * weights).sum()
        if not (math.isfinite(mean) and math.isfinite(m2)):
            raise NonFiniteReward(
                f"the statistics of {values.size} returns are not finite (mean {mean}, sum of squared "
                f"deviations {m2}; largest magnitude {np.abs(values).max()}): rescale the rewards"
            )
        count = values.size if weights is None else round(float(weights.sum()))
        return cls(int(count), float(mean + correction), float(m2))

    def merge(self, *others: ReturnStats) -> ReturnStats:
        """Return the statistics of the union; the order affects rounding only."""
        return reduce(_merge, others, self)

    def std(self, ddof: int = 0) -> float:
        """Return the population (`ddof=0`) or sample (`ddof=1`) standard deviation; 0.0 if undefined."""
        return float(standard_deviation(self.count, self.m2, ddof))

    def scale(self, *, ddof: int = 0, eps: float = 1e-8, min_std: float = 1e-6) -> float:
        """Return the factor in ``advantage = (return - mean) * scale``; see `inverse_std`."""
        return float(inverse_std(self.count, self.mean, self.m2, ddof=ddof, eps=eps, min_std=min_std))

    def metrics(self) -> dict[str, float]:
        """Return number of turns, mean, and population standard deviation, by the names that trainers log."""
        return {
            "rebn/turns": float(self.count),
            "rebn/return_mean": self.mean,
            "rebn/return_std": self.std(),
        }

    def to_wire(self) -> tuple[float, float, float]:
        """Return count, mean, and M2 as three floats, for a float64 collective or a JSON list."""
        return float(self.count), self.mean, self.m2

    @classmethod
    def from_wire(cls, wire: Sequence[float]) -> ReturnStats:
        """Create the statistics from the output of `to_wire`.

        Raises:
            ConfigError: `wire` is not a non-negative whole count, a finite mean, and a non-negative M2.
        """
        numbers = [float(value) for value in wire]
        if (
            len(numbers) != 3
            or not all(map(math.isfinite, numbers))
            or numbers[0] < 0
            or numbers[0] != int(numbers[0])
            or numbers[2] < 0
        ):
            raise ConfigError(f"not the wire form (count, mean, M2) of ReturnStats: {numbers}")
        return cls(int(numbers[0]), numbers[1], numbers[2])


def _merge(a: ReturnStats, b: ReturnStats) -> ReturnStats:
    """Merge two sets of statistics by the formula of Chan, Golub, and LeVeque."""
    if not a.count or not b.count:
        return a if a.count else b
    count = a.count + b.count
    delta = b.mean - a.mean
    return ReturnStats(
        count, a.mean + delta * (b.count / count), a.m2 + b.m2 + delta * delta * (a.count * b.count / count)
    )


def standard_deviation(count: Any, m2: Any, ddof: int) -> FloatArray:
    """Return ``sqrt(m2 / (count - ddof))``, elementwise; 0 where ``count <= ddof``."""
    check_choice("ddof", ddof, (0, 1))
    freedom = np.asarray(count, dtype=np.float64) - ddof
    squares = np.asarray(m2, dtype=np.float64)
    return np.where(freedom > 0, np.sqrt(squares / np.maximum(freedom, 1.0)), 0.0)


def inverse_std(
    count: Any, mean: Any, m2: Any, *, ddof: int = 0, eps: float = 1e-8, min_std: float = 1e-6
) -> FloatArray:
    """Return ``1 / (std + eps)``, elementwise; 0 where the returns count as equal.

    Returns count as equal if there is only one, or if ``std <= min_std * max(1, |mean|)``: the differences
    are then rounding noise, which the division would amplify to advantages of magnitude 1.
    """
    eps, min_std = real("eps", eps, 0), real("min_std", min_std, 0)
    if not np.isfinite(m2).all():
        raise NonFiniteReward("the squared deviations of the returns overflow float64; rescale the rewards")
    std = standard_deviation(count, m2, ddof)
    differ = std > min_std * np.maximum(1.0, np.abs(np.asarray(mean, dtype=np.float64)))
    return np.where(differ, 1.0 / np.where(differ, std + eps, 1.0), 0.0)
