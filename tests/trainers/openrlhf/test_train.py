"""The loss of OpenRLHF's own trainer gets the right inputs from its engine and a tiny model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from tests.trainers import chaos, evidence
from tests.trainers.evidence import assert_update_is_right
from tests.trainers.openrlhf.conftest import GUESS, MASTERMIND
from tests.trainers.openrlhf.data import write_rows
from tests.trainers.openrlhf.harness import run_openrlhf
from tests.trainers.openrlhf.logged import metrics_of
from tests.trainers.openrlhf.measure import gem_seconds
from tests.trainers.openrlhf.spied import losses
from tests.trainers.openrlhf.spied import updates as updates_of
from tests.trainers.processes import Run

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("GEM_CORE_OPENRLHF"), reason="runs the trainer: `nox -s openrlhf` does"
    ),
    pytest.mark.timeout(1200),
]
ENVS = [GUESS, MASTERMIND]


def assert_metrics_are_right(metrics: dict[str, float], episodes: list[evidence.Played]) -> None:
    """Check the common metrics of a step; `episodes` are the trainable ones."""
    evidence.assert_metrics_are_right(metrics, episodes, "rollout/reward_mean")


def assert_weights_are_synced(run: Run) -> None:
    """Check OpenRLHF's own measure, the mean log-prob of the engine minus the actor's."""
    result = [saved["vllm_kl"] for saved in losses(run.spy) if any(map(any, saved["mask"]))]
    assert max(map(abs, result)) <= 1e-3


def test_three_steps_on_a_mix(
    tmp_path: Path,
    base: Path,
    tokenizer: Any,
    model: Any,
    own_ids: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Train on an environment that fails in every way, in micro-batches of one row, OpenRLHF's default.

    The other environments are new ones, a class in a file and an installed package. With this seed some
    resets and first steps raise and some hang, whatever the model answers. The model is a base model, whose
    end-of-sequence token does not end the answers of its chat template.
    """
    evaluated = write_rows(tmp_path / "eval.jsonl", ENVS, 4, split="eval")
    run = run_openrlhf(
        tmp_path,
        base,
        write_rows(tmp_path / "rows.jsonl", [f"{chaos.CHAOS}=2", *own_ids], 12, seed=7),
        {
            "gem.traces": str(tmp_path / "traces"),
            "gem.step_timeout": chaos.STEP_TIMEOUT,
            "train.micro_batch_size": "1",
            "eval.dataset": str(evaluated),
            "eval.steps": "3",
            "eval.n_samples_per_prompt": "1",
            "eval.temperature": "1",
            "ckpt.disable_ds": None,
        },
    ).check()
    episodes = evidence.played(run.spy, tokenizer)
    assert evidence.share_of_stops(episodes) > 0.9
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert len(updates) == len(steps) == 3
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    assert len(traces) == 24
    assert {episode.env_id for episode in traces} == evidence.env_ids(*own_ids, chaos.CHAOS)
    trained = []
    for number, (update, metrics) in enumerate(zip(updates, steps, strict=True)):
        played = traces[8 * number : 8 * number + 8]
        mine = assert_update_is_right(update, episodes, tokenizer, model)
        assert sum(row.is_pad for row in update.rows) == 8 - len(mine)
        assert_metrics_are_right(metrics, mine)
        chaos.assert_rates_are_right(metrics, played)
        assert metrics["reward"] == pytest.approx(metrics["gem/return"], abs=1e-6)
        trained += mine
    assert any(len(episode.rewards) > 1 for episode in trained)
    assert_weights_are_synced(run)
    assert run.output.count("taken from the agent's spans") == 1
    chaos.assert_every_failure_is_counted(traces, run.spy)
    ids = sorted(episode.episode_row().token_ids for episode in traces if episode.trainable)
    assert ids == sorted(episode.token_ids for episode in trained)
    watched = list(read_traces(tmp_path / "traces" / "eval.jsonl"))
    assert sorted(episode.seed or 0 for episode in watched) == [0, 1, 2, 3]
    (evaluated,) = metrics_of(run, "eval")
    for env_id in {episode.env_id for episode in watched}:
        returns = [episode.total_reward for episode in watched if episode.env_id == env_id]
        mean = pytest.approx(sum(returns) / len(returns), abs=1e-6)
        assert evaluated[f"eval_{env_id}_gem/return"] == mean
        assert evaluated[f"eval_{env_id}_pass1"] == mean  # OpenRLHF's name for the mean reward
    calm = [
        replace(e, env_id=GUESS, env_kwargs={}) if e.env_id in evidence.env_ids(chaos.CHAOS) else e
        for e in traces[-8:]
        if e.trainable
    ]
    spent, step = gem_seconds(calm, tokenizer), steps[-1]["timing/step_total"]
    with capsys.disabled():
        print(f"\nGEM's code: {1000 * spent:.1f} ms of a step of {step:.2f} s ({100 * spent / step:.2f}%)")
