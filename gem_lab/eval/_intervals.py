"""Interval estimates: bootstrap over tasks for means, Student's t for few values, Wilson for rates.

Tasks are independent; the samples of a task are not. All functions take one group of values per task, give
each task the same weight, and return a dictionary with the keys ``mean``, ``se`` (standard error), ``low``,
and ``high`` (ends of the interval), each None where the values do not determine it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gem_core.rollout._metrics import standard_error

RESAMPLES = 2000
"""Number of bootstrap samples per interval."""

COVERAGE = 0.95

Estimate: TypeAlias = dict[str, float | None]

_PICKS_AT_ONCE = 1 << 18
"""Number of bootstrap draws in memory at a time; it does not affect the results."""


def estimate(values: Sequence[Sequence[float]], coverage: float = COVERAGE) -> Estimate:
    """Return the mean, standard error, and bootstrap interval of values, one group per task.

    Args:
        values: One group of values per task; empty groups are ignored.
        coverage: Coverage of the interval, from 0 to 1.

    Returns:
        See the module. One task has neither a standard error nor an interval.
    """
    return estimate_strata([values], coverage)


def estimate_strata(strata: Sequence[Sequence[Sequence[float]]], coverage: float = COVERAGE) -> Estimate:
    """Return the mean over strata of equal weight, with an interval by the stratified bootstrap.

    Tasks are resampled within each stratum, so the interval reflects the choice of tasks and not the choice
    of strata.

    Args:
        strata: Groups of values per task for each stratum, such as an environment; strata without a value
            are ignored.
        coverage: Coverage of the interval, from 0 to 1.

    Returns:
        See the module. If a stratum has only one task, there is neither a standard error nor an interval.
    """
    samples = [
        np.asarray(means, np.float64)
        for tasks in strata
        if (means := [fmean(task) for task in tasks if task])
    ]
    if not samples:
        return {"mean": None, "se": None, "low": None, "high": None}
    mean = fmean(fmean(sample.tolist()) for sample in samples)
    if min(map(len, samples)) == 1:
        return {"mean": mean, "se": None, "low": None, "high": None}
    error = math.sqrt(math.fsum(standard_error(sample) ** 2 for sample in samples)) / len(samples)
    random = np.random.default_rng(0)
    resampled = np.mean([_resampled_means(sample, random) for sample in samples], axis=0)
    low, high = np.quantile(resampled, [(1 - coverage) / 2, (1 + coverage) / 2])
    return {"mean": mean, "se": error, "low": float(low), "high": float(high)}


def estimate_t(values: Sequence[float], coverage: float = COVERAGE) -> Estimate:
    """Return the mean of a few values with a t interval.

    With fewer than about 20 values, the bootstrap gives intervals that are too narrow.

    Args:
        values: Independent values, at least one.
        coverage: Coverage of the interval, from 0 to 1.

    Returns:
        See the module. One value has neither a standard error nor an interval.
    """
    mean = fmean(values)
    if len(values) < 2:
        return {"mean": mean, "se": None, "low": None, "high": None}
    error = standard_error(values)
    half = t_bound(coverage, len(values) - 1) * error
    return {"mean": mean, "se": error, "low": mean - half, "high": mean + half}


def t_bound(coverage: float, freedom: int) -> float:
    """Return the bound on the absolute value that Student's t keeps with probability `coverage`.

    Args:
        coverage: A probability above 0 and below 1.
        freedom: Degrees of freedom, at least 1.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _t_coverage(angle, freedom) < coverage else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def _t_coverage(angle: float, freedom: int) -> float:
    """Return P(|T| <= sqrt(freedom) * tan(angle)) (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (power - 1) / power
        total += term
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total


def estimate_rate(values: Sequence[Sequence[float]], coverage: float = COVERAGE) -> Estimate:
    """Return the mean of zeros and ones, with a Wilson interval (Wilson 1927).

    Unlike the bootstrap, the interval has a width if all values are equal: 3 successes of 3 leave room for a
    success rate of 0.44. With several samples per task, the interval is computed for the effective number of
    samples ``p * (1 - p) / se ** 2`` (Korn and Graubard 1998), at least the number of tasks and at most the
    number of samples; it is the number of tasks if all values are equal.

    Args:
        values: One group of zeros and ones per task; empty groups are ignored.
        coverage: Coverage of the interval, from 0 to 1.

    Returns:
        See the module. One task has no standard error.
    """
    groups = [group for group in values if group]
    if not groups:
        return {"mean": None, "se": None, "low": None, "high": None}
    means = [fmean(group) for group in groups]
    rate = fmean(means)
    error = standard_error(means) if len(means) > 1 else None
    size, samples = float(len(groups)), float(sum(map(len, groups)))
    if error is not None and 0 < rate < 1:
        effective = rate * (1 - rate) / error**2 if error else samples
        size = min(max(size, effective), samples)
    z = NormalDist().inv_cdf((1 + coverage) / 2)
    center = (rate + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z * math.sqrt(rate * (1 - rate) / size + z**2 / (4 * size**2)) / (1 + z**2 / size)
    return {"mean": rate, "se": error, "low": max(0.0, center - half), "high": min(1.0, center + half)}


def average(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of independent estimates, with an interval recovered from their intervals.

    The distances between the mean and the ends of its interval are the root sums of squares of these
    distances for the estimates (MOVER, Zou and Donner 2008).

    Args:
        estimates: Estimates of equal weight; those without a mean are ignored.

    Returns:
        See the module. The standard error and the interval are None if an estimate lacks its own.
    """
    known = [
        (one["mean"], one["se"], one["low"], one["high"]) for one in estimates if one["mean"] is not None
    ]
    if not known:
        return {"mean": None, "se": None, "low": None, "high": None}
    mean = fmean(center for center, *_ in known)
    errors = [error for _, error, _, _ in known if error is not None]
    below = [center - low for center, _, low, _ in known if low is not None]
    above = [high - center for center, _, _, high in known if high is not None]
    return {
        "mean": mean,
        "se": math.hypot(*errors) / len(known) if len(errors) == len(known) else None,
        "low": mean - math.hypot(*below) / len(known) if len(below) == len(known) else None,
        "high": mean + math.hypot(*above) / len(known) if len(above) == len(known) else None,
    }


def drop_empty_interval(value: Estimate) -> Estimate:
    """Return the estimate without its interval if that has no width: equal values do not show a spread."""
    return {**value, "low": None, "high": None} if value["low"] == value["high"] else value


def _resampled_means(sample: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    rows = max(1, _PICKS_AT_ONCE // len(sample))
    return np.concatenate(
        [
            sample[random.integers(len(sample), size=(min(rows, RESAMPLES - first), len(sample)))].mean(
                axis=1
            )
            for first in range(0, RESAMPLES, rows)
        ]
    )
