"""Episodes of several rows in OpenRLHF: tokens, advantages, and the gradient of one row per episode."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from gem_core.rollout import Episode, read_traces
from gem_lab.train._batches import policy_gradient
from tests.trainers import chaos, evidence, marks
from tests.trainers.evidence import GAMMA, oracle
from tests.trainers.openrlhf import correction
from tests.trainers.openrlhf.conftest import GUESS
from tests.trainers.openrlhf.harness import run_openrlhf
from tests.trainers.openrlhf.logged import metrics_of
from tests.trainers.openrlhf.spied import updates as updates_of

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (os.environ.get("GEM_CORE_OPENRLHF") and correction.has_levels()),
        reason="runs OpenRLHF 0.11.2: `nox -s openrlhf-full` does",
    ),
    pytest.mark.timeout(1200),
]


def test_a_loss_that_averages_over_rows(tmp_path: Path, base: Path, tokenizer: Any, model: Any) -> None:
    """Two updates for each batch, each of four whole episodes with a row for each turn; some fail."""
    run = run_openrlhf(
        tmp_path,
        marks.marked_model(base, tmp_path),
        f"{chaos.CHAOS}=0.5,{GUESS}=0.5",
        {
            "gem.rows": "turn",
            "gem.max_turns": "4",
            "gem.step_timeout": chaos.STEP_TIMEOUT,
            "gem.template_kwargs": '{"mark":"<|end|>"}',
            "gem.traces": str(tmp_path / "traces"),
            "actor.loss_agg_mode": "seq-mean-token-mean",
            "rollout.batch_size": "4",
            "train.batch_size": "4",
            "train.micro_batch_size": "2",
            "train.seed": "7",
            "data.max_samples": "8",
            "ckpt.disable_ds": None,
        },
    ).check()
    made = evidence.played(run.spy, tokenizer)
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert (len(updates), len(steps)) == (4, 2)
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert len(traces) == 16
    failed = sum(not episode.trainable for episode in traces)
    assert failed
    assert sum(metrics["gem/error_rate"] for metrics in steps) / 2 == pytest.approx(failed / 16)
    trained: list[str] = []
    for step, metrics in enumerate(steps):
        step_updates = updates[2 * step : 2 * step + 2]
        names = [
            [evidence.name_in(row.prompt, tokenizer) for row in update.rows if not row.is_pad]
            for update in step_updates
        ]
        mine = [name for update in names for name in dict.fromkeys(update)]
        assert len(set(mine)) == len(mine)  # all rows of an episode are in one update
        advantages = dict(zip(mine, oracle([list(made[n].rewards) for n in mine], GAMMA), strict=True))
        mean = fmean(sum(made[name].rewards) for name in mine)
        for name in ("rollout/reward_mean", "reward", "score", "gem/return"):
            assert metrics[name] == pytest.approx(mean, abs=1e-6)
        assert metrics["gem/updates"] == 2
        assert metrics["rebn/turns"] == sum(len(made[name].rewards) for name in mine)
        for index, (update, update_names) in enumerate(zip(step_updates, names, strict=True)):
            episodes = assert_weighted(update, update_names, made, advantages)
            if index == 0:  # later, the policy is not the one that sampled
                assert_gradient_is_right(update, episodes, model)
        trained += mine
    assert len(trained) + failed == 16
    assert sum(len(made[name].rewards) for name in trained) > len(trained)


def assert_weighted(
    update: evidence.Update, names: list[str], made: dict[str, Any], advantages: dict[str, Any]
) -> list[Episode]:
    """Check the tokens, and advantages weighted for a mean over episodes of means over tokens."""
    episodes = {name: made[name].episode(advantages[name]) for name in dict.fromkeys(names)}
    turns: dict[str, list[int]] = {name: [] for name in episodes}
    rows = [row for row in update.rows if not row.is_pad]
    for name, row in zip(names, rows, strict=True):
        (turn,) = {turn for turn in made[name].turns_in(row) if turn >= 0}
        turns[name].append(turn)
        share = sum(row.mask) / episodes[name].num_response_tokens
        factor = share * len(rows) / len(episodes)
        wanted = [advantages[name][turn] * factor * on for on in row.mask]
        assert row.advantages == pytest.approx(wanted, abs=1e-5)
    assert {name: sorted(of) for name, of in turns.items()} == {
        name: list(range(len(made[name].rewards))) for name in episodes
    }
    return list(episodes.values())


def assert_gradient_is_right(update: evidence.Update, episodes: list[Episode], model: Any) -> None:
    """Compare with the gradient of the mean over episodes of the mean over the tokens of each."""
    tokens = sum(episode.num_response_tokens for episode in episodes)
    for episode in episodes:
        for turn_of in episode.turns:
            weight = tokens / (len(episodes) * episode.num_response_tokens)
            turn_of.advantage = float(turn_of.advantage or 0.0) * weight
    evidence.load_weights(model, update.weights)
    reference = list(policy_gradient(model, episodes, rows="turn").values())
    found, flat = (torch.cat([part.flatten() for part in parts]) for parts in (update.gradients, reference))
    assert float((found - flat).norm() / flat.norm()) < 1e-5
