"""verl takes the step that all trainers take: tokens, advantages and gradient are gem_core's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.consistency import assemble
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SEED,
    SOURCES,
    TASKS,
    TOKENS,
    TOKENS_PER_TURN,
    scenario,
)
from tests.trainers.verl import harness, spied

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.timeout(1200),
]


def test_the_shared_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    shared = scenario()
    monkeypatch.setenv("GEM_SCRIPT", str(shared.script))
    sources = ",".join(f"'{source}'" for source in SOURCES)
    words = [
        "trainer.v1.trainer_mode=gem_sync",
        f"algorithm.gamma={GAMMA}",
        f"data.train_files=[{sources}]",
        f"+data.seed={SEED}",
        f"data.train_batch_size={TASKS}",
        f"data.train_max_samples={TASKS}",
        f"data.max_response_length={TOKENS}",
        f"actor_rollout_ref.rollout.max_model_len={TOKENS}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "trainer.val_before_train=False",
        "trainer.total_training_steps=1",
        f"+gem.max_turns={MAX_TURNS}",
        f"+gem.max_tokens_per_turn={TOKENS_PER_TURN}",
        "+gem.wrappers=named",
    ]
    run = harness.run_verl(tmp_path, shared.model, *words).check()
    (update,) = spied.updates(run.spy)
    episodes = assemble.from_rows(update.rows, assemble.carried_episodes(run.spy))
    model = AutoModelForCausalLM.from_pretrained(shared.model, attn_implementation="eager").float()
    gradient = assemble.gradient_difference(update, shared.core(), model)
    comparison = assemble.judge(shared, "verl", ["verl", "torch"], " ".join(words), episodes, gradient)
    assert comparison.equal, comparison
