"""Failing environments and bad configs in ROLL's own launcher and pipeline."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gem_core.rollout import read_traces
from tests.trainers import evidence
from tests.trainers.roll import harness
from tests.trainers.roll.spied import updates as updates_of

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_ROLL"), reason="runs the pipeline: `nox -s roll` does"),
    pytest.mark.timeout(1200),
]
GUESS = "game:GuessTheNumber-v0-easy"


@pytest.mark.full
def test_a_run_survives_environments_that_misbehave(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    section = {
        "env_manager_cls": "gem_roll.GemTrajEnvManager", "max_steps": None, "max_tokens_per_step": 24,
        "agent_system_template": None, "agent_template": "{observation}",
    }  # fmt: skip
    kinds = {
        name: {**section, "env_type": f"gem_core:test:{name}"} for name in ("Raises", "Hangs", "Endless")
    }
    changed = {
        "max_steps": 1,
        "sequence_length": 192,
        "train_env_manager": {
            "tags": ["Guess", "Raises", "Hangs", "Endless"],
            "num_groups_partition": [1, 1, 1, 1],
        },
        "custom_envs": {"gem": {"step_timeout": 5, "traces": str(tmp_path / "traces")}, **kinds},
    }
    run = harness.run_roll(tmp_path, warm, changed).check()
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    ends = Counter((e.env_id, e.stop_reason) for e in traces if e.env_id != GUESS)
    assert ends == {
        ("test:Raises", "env_error"): 2,
        ("test:Hangs", "env_error"): 2,
        ("test:Endless", "token_budget"): 2,
    }
    (update,), (metrics,) = updates_of(run.spy), harness.metrics_of(run)
    assert len(update.rows) == 12
    trained = [row for row in update.rows if not row.is_pad]
    assert len(trained) == 4  # endless episodes are cut but trainable
    assert metrics["gem/error_rate"] == 0.5
    assert metrics["gem/truncation_rate"] >= 0.5
    assert all(not any(row.advantages) for row in update.rows if row.is_pad)


@pytest.mark.full
def test_the_documented_step_layout_without_our_pipeline(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    """ROLL's own estimator approximates ReBN if the number of rows fits."""
    names = ("Guess", "Mastermind")
    section = {"env_manager_cls": "gem_roll.GemStepEnvManager", "env_config": {"wrappers": "spy"}}
    changed = {
        "pipeline_cls": "roll.pipeline.agentic.agentic_pipeline.AgenticPipeline",
        "max_steps": 1,
        "adv_estimator": "step_reinforce",
        "gamma": 1.0,
        "step_reward_gamma": evidence.GAMMA,
        "reward_normalization": {"grouping": "batch", "norm_mean_type": "batch", "norm_std_type": "batch"},
        "actor_train": {
            "training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1},
            "infer_batch_size": 1,
        },
        "custom_envs": dict.fromkeys(names, section),
    }
    run = harness.run_roll(tmp_path, warm, changed).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    rows = [row for update in updates_of(run.spy) for row in update.rows]
    turns = sum(len(episode.rewards) for episode in episodes.values())
    assert len(rows) == turns
    wanted = dict(
        zip(episodes, evidence.oracle([e.rewards for e in episodes.values()], evidence.GAMMA), strict=True)
    )
    scale = ((turns - 1) / turns) ** 0.5  # ROLL divides by the standard deviation of a sample
    for row in rows:
        name = evidence.name_in(row.prompt, warm_tokenizer)
        advantage = wanted[name][episodes[name].turn_of(row.prompt, row.response)] * scale
        assert row.advantages == pytest.approx([advantage] * len(row.response), abs=1e-3)


def test_a_config_that_cannot_be_honored_ends_before_a_model_is_loaded(tmp_path: Path, warm: Path) -> None:
    run = harness.run_roll(tmp_path, warm, {"whiten_advantages": True})
    assert run.code == 1
    assert (
        "ConfigError: whiten_advantages=True: would change what rebn computed; set it to false" in run.output
    )
    assert "Loading" not in run.output
