"""Baselines over the valid episodes of a group."""

from __future__ import annotations

import math
import statistics

import pytest

torch = pytest.importorskip("torch")

from gem_core.trainers._baselines import subtract_baselines  # noqa: E402


def test_invalid_episodes_are_in_no_baseline() -> None:
    rewards = torch.tensor([[1.0, 9.0, 3.0, 5.0], [2.0, math.nan, 7.0, math.inf]])
    valid = torch.tensor([[True, False, True, True], [True, False, False, False]])
    centered, std = subtract_baselines(rewards, valid)
    assert centered.tolist() == [[-2.0, 0.0, 0.0, 2.0], [0.0] * 4]
    assert std[:, 0].tolist() == pytest.approx([statistics.stdev([1.0, 3.0, 5.0]), 0.0])
    others, same = subtract_baselines(rewards, valid, leave_one_out=True)
    assert others.tolist() == [[1.0 - 4.0, 0.0, 3.0 - 3.0, 5.0 - 2.0], [0.0] * 4]
    assert same.equal(std)


def test_a_group_of_failures_has_no_advantage() -> None:
    for leave_one_out in (False, True):
        values, std = subtract_baselines(
            torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.bool), leave_one_out=leave_one_out
        )
        assert not values.any()
        assert not std.any()
