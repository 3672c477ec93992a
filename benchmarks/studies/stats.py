"""Statistics over seeds: interquartile means with bootstrap intervals, and summaries of curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 5000
COVERAGE = 0.95

Strata = Sequence[Sequence[float]]
"""One list of values per task, one value per seed."""


def iqm(strata: Strata) -> float:
    """Return the mean of the middle half of all values (Agarwal et al. 2021, arXiv 2108.13264)."""
    return float(_iqm(np.concatenate([np.asarray(values, np.float64) for values in strata])[None])[0])


def iqm_interval(strata: Strata) -> tuple[float, float]:
    """Return the 95% interval of `iqm` by the bootstrap, which resamples seeds within each task."""
    draws = _resampled_iqm([np.asarray(values, np.float64)[:, None] for values in strata])[:, 0]
    return _percentiles(draws)


def iqm_difference(strata: Strata, others: Strata) -> tuple[float, float, float]:
    """Return the difference of two interquartile means of paired seeds, with its bootstrap interval."""
    pairs = [np.column_stack((mine, theirs)) for mine, theirs in zip(strata, others, strict=True)]
    draws = _resampled_iqm(pairs)
    return iqm(strata) - iqm(others), *_percentiles(draws[:, 0] - draws[:, 1])


def area(steps: Sequence[float], values: Sequence[float]) -> float:
    """Return the mean of a curve over its steps, by the trapezoidal rule."""
    if len(steps) == 1:
        return values[0]
    pieces = zip(steps, steps[1:], values, values[1:], strict=False)
    return math.fsum((right - left) * (a + b) / 2 for left, right, a, b in pieces) / (steps[-1] - steps[0])


def mean_of_last(values: Sequence[float], part: int) -> float:
    """Return the mean of the last 1/`part` of the values, but of at least one value; NaN without values."""
    return fmean(values[-max(1, len(values) // part) :]) if values else math.nan


def _resampled_iqm(strata: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return interquartile means of shape (RESAMPLES, columns) of arrays of shape (seeds, columns)."""
    random = np.random.default_rng(0)
    drawn = [values[random.integers(len(values), size=(RESAMPLES, len(values)))] for values in strata]
    together = np.concatenate(drawn, axis=1)
    return np.stack([_iqm(together[:, :, column]) for column in range(together.shape[2])], axis=1)


def _iqm(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    cut = rows.shape[1] // 4
    ordered = np.sort(rows, axis=1)
    return np.asarray(ordered[:, cut : rows.shape[1] - cut].mean(axis=1))


def _percentiles(draws: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)
