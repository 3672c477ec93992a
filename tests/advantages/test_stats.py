"""Merged statistics equal those of the union, stay precise, and are never NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.advantages import ReturnStats
from gem_core.errors import ConfigError, NonFiniteReward

parts = st.lists(st.lists(st.floats(-1e3, 1e3), max_size=6), min_size=3, max_size=5)


def approx(stats: ReturnStats) -> object:
    return pytest.approx(stats.to_wire(), rel=1e-9, abs=1e-7)


@given(parts)
def test_merging_equals_the_statistics_of_the_union(parts):
    merged = ReturnStats().merge(*(ReturnStats.from_returns(np.array(part)) for part in parts))
    assert merged.to_wire() == approx(ReturnStats.from_returns([np.array(part) for part in parts]))


@given(parts)
def test_merging_is_associative_and_commutative(parts):
    a, b, c = (ReturnStats.from_returns(np.array(part)) for part in parts[:3])
    assert a.merge(b).merge(c).to_wire() == approx(a.merge(b.merge(c)))
    assert a.merge(b).to_wire() == approx(b.merge(a))
    assert a.merge(ReturnStats()) == ReturnStats().merge(a) == a


@given(st.lists(st.floats(-1e3, 1e3), min_size=2))
def test_agrees_with_numpy(values):
    stats = ReturnStats.from_returns(np.array(values))
    assert stats.count == len(values)
    assert stats.mean == pytest.approx(np.mean(values), abs=1e-9)
    for ddof in (0, 1):
        assert stats.std(ddof) == pytest.approx(np.std(values, ddof=ddof), abs=1e-9)


def test_nothing_cancels_on_a_large_offset():
    values = 1e8 + np.array([-1.0, 1.0] * 500)
    halves = ReturnStats.from_returns(values[:3]).merge(ReturnStats.from_returns(values[3:]))
    assert halves.std() == pytest.approx(1.0, rel=1e-9)
    assert halves.mean == pytest.approx(1e8, rel=1e-15)


def test_without_freedom_the_deviation_is_zero():
    assert ReturnStats().std() == ReturnStats().std(1) == 0.0
    assert ReturnStats.from_returns([[3.0]]).std(1) == 0.0
    assert ReturnStats.from_returns([]) == ReturnStats.from_returns([[], []]) == ReturnStats()


@pytest.mark.parametrize(
    ("returns", "differ"),
    [
        ([0.0, 3e-6], True),  # std 1.5e-6 > min_std
        ([0.0, 1e-6], False),
        ([1e3, 1e3 + 3e-3], True),  # relative to a mean above 1
        ([1e3, 1e3 + 1e-3], False),
        ([5.0], False),
        ([], False),
    ],
)
def test_scale_is_zero_exactly_when_the_returns_do_not_differ(returns, differ):
    assert (ReturnStats.from_returns([returns]).scale() > 0) is differ


def test_scale_is_zero_without_any_tolerance_too():
    assert ReturnStats.from_returns([[2.0, 2.0]]).scale(eps=0.0, min_std=0.0) == 0.0


def test_the_wire_form_round_trips():
    stats = ReturnStats.from_returns([[0.1, 0.2], [0.7]])
    assert ReturnStats.from_wire(stats.to_wire()) == stats
    assert all(type(value) is float for value in stats.to_wire())


@pytest.mark.parametrize(
    "wire", [(1.0, 2.0), (1.5, 0.0, 0.0), (-1.0, 0.0, 0.0), (2.0, math.nan, 0.0), (2, 0, -1)]
)
def test_a_broken_wire_form_is_rejected(wire):
    with pytest.raises(ConfigError, match="wire form"):
        ReturnStats.from_wire(wire)


@pytest.mark.parametrize("values", [[1.0, math.nan], [math.inf], [1e200, -1e200], [1.7e308, 1.7e308]])
def test_an_overflow_is_an_error_and_not_nan(values):
    with pytest.raises(NonFiniteReward, match=f"{len(values)} returns"):
        ReturnStats.from_returns([values])


def test_a_merge_that_overflows_is_an_error_and_not_nan():
    merged = ReturnStats(1, 1e200, 0.0).merge(ReturnStats(1, -1e200, 0.0))
    with pytest.raises(NonFiniteReward, match="overflow"):
        merged.scale()


@pytest.mark.parametrize("options", [{"ddof": 2}, {"eps": -1.0}, {"min_std": math.nan}])
def test_options_out_of_range_are_rejected(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        ReturnStats(2, 0.0, 1.0).scale(**options)


def test_metrics_are_those_that_every_trainer_logs():
    stats = ReturnStats.from_returns([[1.0, 2.0], [3.0]])
    assert stats.metrics() == {
        "rebn/turns": 3.0, "rebn/return_mean": 2.0, "rebn/return_std": pytest.approx((2 / 3) ** 0.5),
    }  # fmt: skip
