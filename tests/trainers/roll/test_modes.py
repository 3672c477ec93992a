"""Options of ROLL's loss that the default runs do not use, in one run for `nox -s roll-full`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.trainers import evidence
from tests.trainers.evidence import assert_update_is_right
from tests.trainers.roll import harness
from tests.trainers.roll.spied import updates as updates_of
from tests.trainers.roll.test_train import assert_metrics_are_right

SLOWLY = {"training_args": {"learning_rate": 1e-7, "gradient_accumulation_steps": 3}}
"""Updates of twelve rows, after which the weights hardly differ, so that PPO's ratio is 1 in each of them."""
FAILING = {"env_type": "gem_core:test:Chaos-v0", "env_config": {"p": 0.4, "hang": 0, "only": "step"}}

TERMS = {
    "ppo_epochs": 2,
    "use_kl_loss": True,
    "kl_loss_coef": 0.01,
    "entropy_loss_coef": 0.0001,
    "train_infer_correction": {"is_weight": {"enabled": True}},
    "reference": {
        "worker_cls": "roll_workers.CpuActor",
        "model_args": {"attn_implementation": "sdpa", "dtype": "fp32"},
        "strategy_args": {
            "strategy_name": "fsdp2_infer",
            "strategy_config": {"fsdp_size": 1, "param_dtype": "fp32", "reduce_dtype": "fp32"},
        },
        "device_mapping": "[0]",
        "infer_batch_size": 4,
    },
    "actor_train": SLOWLY,
}
"""Two epochs, a KL loss, an entropy bonus, and a correction of log-probs."""


@pytest.mark.skipif(not os.environ.get("GEM_CORE_ROLL"), reason="runs the pipeline: `nox -s roll-full` does")
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_two_epochs_and_other_terms_of_the_loss(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    """Some episodes fail, so copies fill more than the four missing rows of each update."""
    run = harness.run_roll(
        tmp_path, warm, {"max_steps": 2, **TERMS, "custom_envs": {"Guess": FAILING}}
    ).check()
    episodes = evidence.played(run.spy, warm_tokenizer)
    updates, steps = updates_of(run.spy), harness.metrics_of(run)
    assert len(updates) == 4
    failed = 0
    for index, update in enumerate(updates):
        mine, metrics = assert_update_is_right(update, episodes, warm_tokenizer, model), steps[index // 2]
        assert sum(row.is_pad for row in update.rows) == metrics["system/batch_add_count"] == 12 - len(mine)
        failed += 8 - len(mine)
        assert_metrics_are_right(metrics, mine, 8 - len(mine))
    assert failed
    for metrics in steps:
        ratios = [metrics[f"actor/ratio_{name}"] for name in ("min@min", "mean@sum", "max@max")]
        assert ratios == pytest.approx([1, 1, 1], abs=1e-3)
    for metrics in steps:  # the bonus of an entropy of about 3 is in the loss
        assert metrics["actor/pg_loss@sum"] - metrics["actor/total_loss@sum"] > 1e-5
        assert metrics["actor/kl_loss@sum"] >= 0
