"""The golden vectors equal the oracle's results, and the numpy reference agrees with them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gem_core import advantages
from gem_core.advantages import ReturnStats
from tests.advantages import oracle
from tests.advantages.batches import CASE_NAMES, CASES, trainable


def close(actual: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    """Assert equal shapes, and equal values up to a tolerance relative to the largest wanted number."""
    assert len(actual) == len(wanted)
    size = max([1.0, *(abs(x) for row in wanted for x in row)])
    for mine, row in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(mine, row, rtol=0, atol=tolerance * size)


def test_regenerating_gives_the_committed_file():
    assert json.loads(oracle.GOLDEN.read_text()) == json.loads(oracle.to_json(oracle.golden_cases()))


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_reference_agrees(case):
    episodes = trainable(case["episodes"])
    rewards = [episode["rewards"] for episode in episodes]
    groups = [episode["group"] for episode in episodes]
    gamma = case["gamma"]
    statistics = {key: case[key] for key in ("ddof", "eps", "min_std")}
    wanted = {
        name: [row for row in rows if row is not None]
        for name, rows in case["expected"].items()
        if name != "stats"
    }
    gs = advantages.returns(rewards, gamma)
    close(gs, wanted["returns"])
    close(advantages.reinforce(rewards, gamma=gamma), wanted["returns"])
    close(advantages.rebn(rewards, gamma=gamma, **statistics), wanted["rebn"])
    close(advantages.grpo(rewards, group_ids=groups, gamma=gamma, **statistics), wanted["grpo"])
    close(advantages.rloo(rewards, group_ids=groups, gamma=gamma), wanted["rloo"])
    gae = advantages.gae(
        rewards,
        values=[episode["values"] for episode in episodes],
        gamma=gamma,
        lam=case["lam"],
        bootstrap=[episode["bootstrap"] for episode in episodes],
    )
    close(gae, wanted["gae"])
    stats = ReturnStats.from_returns(gs)
    assert stats.count == case["expected"]["stats"][0]
    np.testing.assert_allclose(stats.to_wire(), case["expected"]["stats"], rtol=1e-12, atol=1e-12)
