"""OpenRLHF's modes get the right advantages and gradients, too, or are rejected before a model is loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.trainers import evidence
from tests.trainers.evidence import assert_update_is_right
from tests.trainers.openrlhf.conftest import GUESS, MASTERMIND
from tests.trainers.openrlhf.data import write_rows
from tests.trainers.openrlhf.harness import run_openrlhf
from tests.trainers.openrlhf.logged import metrics_of
from tests.trainers.openrlhf.spied import updates as updates_of
from tests.trainers.openrlhf.test_train import assert_metrics_are_right

SLOWLY = {"actor.adam.lr": "1e-6"}
"""Weights that hardly change, so that PPO's ratio is 1 in updates that are not on-policy."""

MODES: dict[str, tuple[dict[str, str | None], int]] = {
    "asynchronous": ({**SLOWLY, "train.async_enable": None}, 1),
    "partial rollouts": ({**SLOWLY, "train.async_enable": None, "train.partial_rollout_enable": None}, 1),
    "two agent workers, prefix caching, and eight samples": (
        {
            "vllm.num_engines": "2",
            "vllm.enable_prefix_caching": None,
            "rollout.batch_size": "2",
            "rollout.n_samples_per_prompt": "8",
            "train.batch_size": "16",
            "data.max_samples": "4",
        },
        1,
    ),
    "two epochs": ({**SLOWLY, "train.max_epochs": "2"}, 2),
    "shared devices": ({"train.colocate_all": None}, 1),
}
"""Flags and number of updates per step."""


@pytest.mark.skipif(
    not os.environ.get("GEM_CORE_OPENRLHF"), reason="runs the trainer: `nox -s openrlhf-full` does"
)
@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", MODES)
def test_the_loss_gets_the_advantages_of_the_oracle(
    mode: str, tmp_path: Path, warm: Path, tokenizer: Any, model: Any
) -> None:
    flags, repeats = MODES[mode]
    rows = write_rows(tmp_path / "rows.jsonl", [GUESS, MASTERMIND], 8)
    run = run_openrlhf(tmp_path, warm, rows, flags).check()
    episodes = evidence.played(run.spy, tokenizer)
    updates, steps = updates_of(run.spy), metrics_of(run)
    assert len(steps) == 2
    assert len(updates) == 2 * repeats
    for number, update in enumerate(updates):
        mine = assert_update_is_right(update, episodes, tokenizer, model)
        assert_metrics_are_right(steps[number // repeats], mine)
