"""mini-swe-agent trains in TRL on tasks of files: rows, advantages, and the gradient."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gem_trl._dataset import tasks
from transformers import AutoTokenizer

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")

import gem_core
from gem_core.rollout import Generation
from gem_lab._engines.sampling import BatchingPolicy
from tests.trainers import tool_episodes
from tests.trainers.trl import harness
from tests.trainers.trl.test_coding_agent import assert_step_is_that_of_the_oracle

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("mini") is None, reason="needs mini-swe-agent; `nox -s harness` installs it"
    ),
]
TASKS = "terminal:Files-v0"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def solutions(rows: Any) -> dict[str, str]:
    """Return the solution of each task, by its instruction."""
    found = {}
    with gem_core.make(TASKS) as env:
        for row in rows:
            env.reset(seed=json.loads(row["prompt"])["seed"])
            found[env.unwrapped.task.instruction] = env.unwrapped.task.solution
    return found


def test_a_step_has_the_gradient_of_the_oracle(
    tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two samples of a task, one solves it and one only looks."""
    tokenizer = AutoTokenizer.from_pretrained(harness.MODEL)
    tokenizer.chat_template = tool_episodes.template("hermes", "<|ROLE|>", "<|end|>")
    rows = tasks([TASKS], 2)
    by_instruction = solutions(rows)

    async def generate(self: Any, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Any:
        prompt = tokenizer.decode(list(prompt_ids))
        (solution,) = (text for instruction, text in by_instruction.items() if instruction in prompt)
        first = f"bash -c {shlex.quote(solution)}" if int(request_id.rpartition("/")[2]) % 2 else "ls"
        command = first if prompt.count("<|assistant|>") == 1 else SUBMIT
        call = json.dumps({"name": "bash", "arguments": {"command": command}})
        said = f"I try.\n<tool_call>\n{call}\n</tool_call>"
        ids = [id for letter in said for id in tokenizer.encode(letter)] + [tokenizer.eos_token_id]
        return Generation(ids[:max_tokens], [-1.0] * len(ids), "stop")

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
        gem=harness.gem(harness="mini-swe-agent", max_turns=6, max_tokens_per_turn=2000),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    trainer.train()
    (episodes,) = trainer.rollouts
    assert len(episodes) == 4
    assert sorted(episode.rewards for episode in episodes) == [[0.0, 0.0]] * 2 + [[0.0, 1.0]] * 2
    assert all(episode.metadata["gateway"]["recognized"] == 1 for episode in episodes)
    assert_step_is_that_of_the_oracle(trainer, model)
