from __future__ import annotations

import math
import tracemalloc
from statistics import fmean, stdev

import numpy as np
import pytest

from gem_lab.eval._intervals import average, estimate, estimate_rate, estimate_strata, estimate_t, t_bound


def test_mean_error_and_interval():
    values = [0.0, 1.0, 1.0, 0.5, 0.25]
    found = estimate([[value] for value in values])
    assert found["mean"] == pytest.approx(fmean(values))
    assert found["se"] == pytest.approx(stdev(values) / math.sqrt(5))
    assert 0 <= found["low"] < found["mean"] < found["high"] <= 1
    assert found == estimate([[value] for value in values])  # the same numbers again


def test_the_interval_contains_the_truth_about_as_often_as_it_claims():
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        found = estimate([[value] for value in random.normal(0.3, 1.0, size=60)])
        inside += found["low"] <= 0.3 <= found["high"]
    assert 178 <= inside <= 200  # 95 % of 200 is 190


@pytest.mark.parametrize(
    ("coverage", "freedom", "bound"),
    [  # of published tables
        (0.9, 1, 6.314), (0.95, 1, 12.706), (0.95, 2, 4.303), (0.9, 4, 2.132), (0.99, 3, 5.841),
        (0.95, 9, 2.262), (0.95, 10, 2.228), (0.99, 30, 2.750), (0.95, 120, 1.980),
    ],
)  # fmt: skip
def test_bounds_of_t(coverage: float, freedom: int, bound: float) -> None:
    assert t_bound(coverage, freedom) == pytest.approx(bound, abs=5.1e-4)


def test_a_few_values_have_the_t_interval():
    found = estimate_t([1.0, 2.0, 3.0])
    assert found["se"] == pytest.approx(1 / math.sqrt(3))
    assert (found["mean"], found["low"], found["high"]) == pytest.approx(
        (2, 2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), abs=1e-4
    )
    assert estimate_t([1.0]) == {"mean": 1.0, "se": None, "low": None, "high": None}
    random = np.random.default_rng(0)
    drawn = [estimate_t(random.normal(size=5).tolist(), 0.9) for _ in range(2000)]
    assert fmean(each["low"] < 0 < each["high"] for each in drawn) == pytest.approx(0.9, abs=0.02)


def test_the_bootstrap_of_many_tasks_needs_little_memory_and_draws_the_same():
    means = np.random.default_rng(1).normal(size=3000)
    tracemalloc.start()
    try:
        found = estimate([[value] for value in means.tolist()])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10_000_000
    picks = np.random.default_rng(0).integers(3000, size=(2000, 3000))  # 48 MB
    assert [found["low"], found["high"]] == np.quantile(means[picks].mean(axis=1), [0.025, 0.975]).tolist()


def test_samples_of_a_task_are_not_independent():
    once = estimate([[0.0], [1.0]])
    assert estimate([[0.0] * 50, [1.0] * 50]) == once
    assert estimate([[0.0, 1.0]]) == {"mean": 0.5, "se": None, "low": None, "high": None}


def test_strata_have_equal_weights_and_are_resampled_separately():
    many, few = [[0.0], [1.0]] * 50, [[5.0], [7.0]]
    both = estimate_strata([many, few])
    assert both["mean"] == pytest.approx((0.5 + 6.0) / 2)
    assert both["se"] == pytest.approx(math.hypot(estimate(many)["se"], estimate(few)["se"]) / 2)
    assert (0.4 + 5.0) / 2 < both["low"] < 2.8  # not from one stratum only
    assert estimate_strata([many]) == estimate_strata([[], many, [[]]]) == estimate(many)
    assert estimate_strata([many, [[2.0]]]) == {"mean": 1.25, "se": None, "low": None, "high": None}


@pytest.mark.parametrize(
    ("successes", "tasks", "low", "high"),
    [(0, 10, 0.0, 0.2775), (3, 3, 0.4385, 1.0), (7, 20, 0.1812, 0.5671)],  # Wilson's score interval
)
def test_rates_of_single_samples_have_the_wilson_interval(successes, tasks, low, high):
    rate = estimate_rate([[1.0]] * successes + [[0.0]] * (tasks - successes))
    assert rate["low"] == pytest.approx(low, abs=1e-4)
    assert rate["high"] == pytest.approx(high, abs=1e-4)


def test_samples_count_for_a_rate_as_far_as_they_are_independent():
    def width(tasks):
        rate = estimate_rate(tasks)
        return rate["high"] - rate["low"]

    single = width([[0.0], [1.0]] * 10)
    assert width([[0.0] * 8, [1.0] * 8] * 10) == pytest.approx(single)  # samples repeat their task
    assert width([[0.0, 1.0] * 4] * 20) == pytest.approx(width([[0.0], [1.0]] * 80))  # equal tasks
    random = np.random.default_rng(0)
    independent = width(random.integers(2, size=(20, 8)).astype(float).tolist())
    assert 0.8 * single / math.sqrt(8) < independent < 1.3 * single / math.sqrt(8)


def test_the_interval_of_a_rate_contains_the_truth_about_as_often_as_it_claims():
    random = np.random.default_rng(2)
    for rate in (0.05, 0.5, 0.9):
        inside = 0
        for _ in range(300):
            found = estimate_rate([[float(value)] for value in random.random(25) < rate])
            inside += found["low"] <= rate <= found["high"]
        assert inside >= 276  # 95% of 300 is 285


def test_the_average_of_estimates():
    one = {"mean": 0.5, "se": 0.3, "low": 0.2, "high": 0.6}
    other = {"mean": 0.1, "se": 0.4, "low": -0.3, "high": 0.4}
    nothing = {"mean": None, "se": None, "low": None, "high": None}
    assert average([one, nothing]) == pytest.approx(one)
    assert average([nothing]) == average([]) == nothing
    both = average([one, other])
    assert both["mean"] == pytest.approx(0.3)
    assert both["se"] == pytest.approx(0.25)
    assert both["low"] == pytest.approx(0.3 - 0.25)
    assert both["high"] == pytest.approx(0.3 + math.hypot(0.1, 0.3) / 2)
    assert average([one, {**other, "se": None, "low": None}])["low"] is None
