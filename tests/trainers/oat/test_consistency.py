"""Oat takes the step that all trainers take: tokens, advantages and gradient are gem_core's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.consistency import assemble
from tests.consistency.scenario import (
    GAMMA,
    MAX_TURNS,
    SAMPLES,
    SEED,
    SOURCES,
    TOKENS,
    TOKENS_PER_TURN,
    scenario,
)
from tests.trainers.oat import harness, spied

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_OAT"), reason="runs the trainer: `nox -s oat` does"),
    pytest.mark.timeout(900),
]


def test_the_shared_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shared = scenario()
    core = shared.core()
    monkeypatch.setenv("GEM_SCRIPT", str(shared.script))
    turns = sum(len(episode.advantages) for episode in core.episodes)
    flags = {
        "gamma": str(GAMMA),
        "env_id": " ".join(SOURCES),
        "seed": str(SEED),
        "group_size": str(SAMPLES),
        "num_env": "1",  # one after the other, so that the last episode is the last one that is needed
        "max_turns": str(MAX_TURNS),
        "generate_max_length": str(TOKENS_PER_TURN),
        "max_model_len": str(TOKENS),
        "rollout_batch_size": str(turns),
        "rollout_batch_size_per_device": str(turns),
        "train_batch_size": str(turns),
        "train_batch_size_per_device": str(turns),
        "max_train": str(turns),
        "wrappers": "named",
    }
    run = harness.run_oat(tmp_path, shared.model, **flags).check()
    (update,) = spied.updates(run.spy)
    tokenizer = AutoTokenizer.from_pretrained(shared.model)
    outlines = [episode for _, episode in assemble.carried_episodes(run.spy)]
    episodes = assemble.from_turns(update.rows, outlines, tokenizer)
    model = AutoModelForCausalLM.from_pretrained(shared.model, attn_implementation="eager").float()
    tokens = sum(turn >= 0 for episode in core.episodes for turn in episode.turn_ids)
    factor = tokens / (
        turns * TOKENS_PER_TURN
    )  # Oat sums over tokens, and divides by a constant and the rows
    gradient = assemble.gradient_difference(update, core, model, factor)
    words = " ".join(harness.command(shared.model, tmp_path, **flags)[1:])
    comparison = assemble.judge(shared, "oat", ["oat-llm", "torch"], words, episodes, gradient)
    assert comparison.equal, comparison
