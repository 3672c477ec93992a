"""mini-swe-agent trains in TRL on tasks of files: rows, advantages, and the gradient."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gem_trl._dataset import tasks
from transformers import AutoTokenizer

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")

from gem_lab._engines.sampling import BatchingPolicy
from tests.trainers import real_agent
from tests.trainers.trl import harness
from tests.trainers.trl.test_coding_agent import assert_step_is_that_of_the_oracle

pytestmark = [pytest.mark.full, real_agent.needs_agent]


def test_a_step_has_the_gradient_of_the_oracle(
    tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two samples of a task, one solves it and one only looks."""
    tokenizer = real_agent.with_calls(AutoTokenizer.from_pretrained(harness.MODEL))
    rows = tasks([real_agent.TASKS], 2)
    solved = real_agent.solutions(json.loads(row["prompt"])["seed"] for row in rows)

    async def generate(self: Any, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Any:
        solves = int(request_id.rpartition("/")[2]) % 2 == 1
        return real_agent.answer(tokenizer, prompt_ids, solved, solves)

    monkeypatch.setattr(BatchingPolicy, "generate", generate)
    trainer = harness.Spied(
        harness.MODEL,
        args=harness.config(
            tmp_path,
            max_steps=1,
            gradient_accumulation_steps=1,
            max_completion_length=4000,
            loss_type="dapo",
            beta=0.0,
        ),
        gem=harness.gem(harness=real_agent.NAME, max_turns=6, max_tokens_per_turn=2000),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    trainer.train()
    (episodes,) = trainer.rollouts
    assert len(episodes) == 4
    assert sorted(episode.rewards for episode in episodes) == [[0.0, 0.0]] * 2 + [[0.0, 1.0]] * 2
    assert all(episode.metadata["gateway"]["recognized"] == 1 for episode in episodes)
    assert_step_is_that_of_the_oracle(trainer, model)
