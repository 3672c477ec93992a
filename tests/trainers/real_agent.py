"""mini-swe-agent on tasks of files, for tests of trainers: a sample solves its task or only looks at it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

import gem_core
from gem_core.rollout import Generation
from tests.trainers import tool_episodes

TASKS = "terminal:Files-v0"
NAME = "mini-swe-agent"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

needs_agent = pytest.mark.skipif(
    shutil.which("mini") is None, reason="needs mini-swe-agent; `nox -s harness` installs it"
)


def with_calls(tokenizer: Any) -> Any:
    """Return a tokenizer of the tiny models with a chat template that has calls."""
    tokenizer.chat_template = tool_episodes.template("hermes", "<|ROLE|>", "<|end|>")
    return tokenizer


def solutions(seeds: Iterable[int]) -> dict[str, str]:
    """Return the solution of each task, by its instruction."""
    found = {}
    with gem_core.make(TASKS) as env:
        for seed in seeds:
            env.reset(seed=seed)
            found[env.unwrapped.task.instruction] = env.unwrapped.task.solution
    return found


def answer(tokenizer: Any, prompt_ids: Sequence[int], solved: Mapping[str, str], solves: bool) -> Generation:
    """Return a call of the shell, letter by letter: of the solution or of `ls`, and then the end."""
    prompt = tokenizer.decode(list(prompt_ids))
    (solution,) = (text for instruction, text in solved.items() if instruction in prompt)
    first = f"bash -c {shlex.quote(solution)}" if solves else "ls"
    command = first if prompt.count("<|assistant|>") == 1 else SUBMIT
    call = json.dumps({"name": "bash", "arguments": {"command": command}})
    said = f"I try.\n<tool_call>\n{call}\n</tool_call>"
    ids = [id for letter in said for id in tokenizer.encode(letter)] + [tokenizer.eos_token_id]
    return Generation(ids, [-1.0] * len(ids), "stop")
