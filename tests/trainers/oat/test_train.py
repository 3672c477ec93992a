"""Oat's own actor, learner and collector with a tiny model: what the loss consumes is what it should be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.evidence import Played, assert_update_is_right, played
from tests.trainers.oat import harness, spied

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_OAT"), reason="runs the trainer: `nox -s oat` does"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def model(warm: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(warm, attn_implementation="eager").float()


@pytest.fixture(scope="module")
def tokenizer(warm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(warm)


def assert_updates_are_right(spy: Path, tokenizer: Any, model: Any, rows: int) -> list[list[Played]]:
    """Each update of a run; returns the episodes collected for each."""
    episodes, found = played(spy, tokenizer), []
    for update in spied.updates(spy):
        assert len(update.rows) == rows
        found.append(
            assert_update_is_right(
                update, episodes, tokenizer, model, row_per_turn=True, collected=update.collected
            )
        )
    return found


def test_three_steps_on_a_mix(tmp_path: Path, warm: Path, tokenizer: Any, model: Any) -> None:
    run = harness.run_oat(tmp_path, warm).check()
    collected = assert_updates_are_right(run.spy, tokenizer, model, rows=16)
    assert len(collected) == 3
    turns = [sum(len(episode.rewards) for episode in episodes) for episodes in collected]
    assert max(turns) > 16  # some were dropped, and count all the same


def test_rebuilt_contexts(tmp_path: Path, warm: Path, tokenizer: Any, model: Any) -> None:
    run = harness.run_oat(tmp_path, warm, context="rebuild", wrappers="spy,concat_with_action").check()
    assert len(assert_updates_are_right(run.spy, tokenizer, model, rows=16)) == 3
