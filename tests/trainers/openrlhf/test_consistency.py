"""OpenRLHF takes the step that all trainers take: tokens, advantages and gradient are gem_core's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gem_openrlhf.export import write

from tests.consistency import assemble
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SAMPLES,
    TASKS,
    TOKENS,
    TOKENS_PER_TURN,
    scenario,
    tasks,
)
from tests.trainers.openrlhf import harness, spied

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("GEM_CORE_OPENRLHF"), reason="runs the trainer: `nox -s openrlhf` does"
    ),
    pytest.mark.timeout(1200),
]


def test_the_shared_step(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    shared = scenario()
    write(tasks(), tmp_path / "rows.jsonl")
    flags = {
        "algo.advantage.gamma": str(GAMMA),
        "algo.advantage.is_correction_level": "off",
        "data.max_len": str(TOKENS),
        "rollout.max_new_tokens": str(TOKENS_PER_TURN),
        "rollout.batch_size": str(TASKS),
        "rollout.n_samples_per_prompt": str(SAMPLES),
        "train.batch_size": str(TASKS * SAMPLES),
        "train.micro_batch_size": str(TASKS * SAMPLES),
        "gem.max_turns": str(MAX_TURNS),
        "gem.wrappers": "named",
        "ckpt.disable_ds": None,
    }
    environment = {"GEM_SCRIPT": str(shared.script)}
    run = harness.run_openrlhf(
        tmp_path, shared.model, tmp_path / "rows.jsonl", flags, environment=environment
    ).check()
    (update,) = spied.updates(run.spy)
    episodes = assemble.from_rows(update.rows, assemble.carried_episodes(run.spy))
    model = AutoModelForCausalLM.from_pretrained(shared.model, attn_implementation="eager").float()
    gradient = assemble.gradient_difference(update, shared.core(), model)
    words = " ".join(harness.words(flags))
    comparison = assemble.judge(shared, "openrlhf", ["openrlhf", "torch"], words, episodes, gradient)
    assert comparison.equal, comparison
