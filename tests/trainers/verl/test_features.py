"""Features of verl that change how a batch is played or split: its loss still gets the right inputs."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.trainers import evidence
from tests.trainers.verl import harness
from tests.trainers.verl.spied import metrics_of, updates

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.full,
    pytest.mark.timeout(1200),
]

TOKENS = 600
"""Maximum size of a dynamic micro-batch."""
DYNAMIC = [
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={TOKENS}",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
    f"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu={TOKENS}",
]
FEATURES = {
    "agent-workers": ["actor_rollout_ref.rollout.agent.num_workers=3"],
    "dynamic-micro-batches": DYNAMIC,
    "remove-padding": ["actor_rollout_ref.model.use_remove_padding=True"],
}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_of_verl(feature: str, tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        "trainer.v1.trainer_mode=gem_sync",
        "trainer.val_before_train=False",
        "trainer.total_training_steps=2",
        *FEATURES[feature],
    ).check()
    if feature == "agent-workers":
        assert len(set(re.findall(r"GemAgentLoopWorker pid=(\d+)", run.output))) > 1
    episodes = evidence.played(run.spy, warm_tokenizer)
    steps = metrics_of(run)
    assert len(updates(run.spy)) == len(steps) == 2
    for update, metrics in zip(updates(run.spy), steps, strict=True):
        mine = evidence.assert_update_is_right(update, episodes, warm_tokenizer, model)
        assert len(mine) == 8
        assert metrics["rebn/turns"] == sum(len(episode.rewards) for episode in mine)
    if feature == "dynamic-micro-batches":
        sizes = [sum(len(row.prompt + row.response) for row in update.rows) for update in updates(run.spy)]
        assert len(list(run.spy.glob("loss-*.pt"))) == sum(math.ceil(size / TOKENS) for size in sizes)
