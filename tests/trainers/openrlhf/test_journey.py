"""A user of GRPO with questions like GSM8K's adds a game beside them, as the page says.

After the imports it takes about 1 s on two CPU cores, without training.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from unittest import mock

import pytest
import ray

from gem_lab import main
from tests.docs.blocks import blocks, commands
from tests.trainers.preflight import check_mistakes, write_questions

PAGE = "docs/trainers/openrlhf.md"
USER = shlex.split(
    "--actor.model_name_or_path org/model --vllm.num_engines 1 --rollout.batch_size 64 "
    "--train.batch_size 16 "
    "--rollout.n_samples_per_prompt 4 --algo.kl.init_coef 0 --eval.steps 5"
)
"""Flags of a user of GRPO."""
GAME = "game:GuessTheNumber-v0-easy"
MISTAKES = {
    ("--gem.max_turnz", "8"): "unrecognized arguments: --gem.max_turnz",
    ("--algo.advantage.estimator", "gem_gpro"): "invalid choice: 'gem_gpro'",
    ("--gem.wrappers", "concatenate"): "concatenate",
    ("--rollout.n_samples_per_prompt", "1"): "group_norm requires n_samples_per_prompt > 1",
    ("--data.prompt_dataset", f"gsm8k/train.jsonl,{GAME.replace('Guess', 'Gues')}"): f"Did you mean {GAME}",
    ("--data.prompt_dataset", f"gsm8k/train.jsonl,{GAME}(max_numbr=5)"): "max_numbr",
    ("--data.prompt_dataset", f"gsm8k/train.jsonl,{GAME},rg:leg_counting"): "pip install 'gem-core[rg]'",
    ("--data.input_key", "input"): "gsm8k/train.jsonl, line 1: no column 'input', only question, answer",
    ("--data.label_key", "label"): "gsm8k/train.jsonl, line 1: no label in the column 'label'",
    ("--reward.remote_url", ""): "line 1: the label '0' names no task, and nothing else rewards the row",
}


def test_the_page_is_accepted_and_mistakes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path)
    (tmp_path / "reward.py").write_text("def reward_func(queries, prompts, labels): ...\n")
    (training,) = commands(PAGE, "gsm8k/train.jsonl,game", {'"$@"': shlex.join(USER)})
    assert training[:3] == ["python3", "-m", "gem_openrlhf.train_ppo_ray"]
    (before,) = commands(
        PAGE,
        'openrlhf.cli.train_ppo_ray "$@" \\\n   --algo.advantage.estimator group_norm',
        {'"$@"': shlex.join(USER)},
    )
    added = [word for word in training[3:] if word not in before]
    assert [word.partition(",")[0] for word in added] == [
        "gsm8k/train.jsonl", "gsm8k/test.jsonl", "--gem.max_turns", "12", "--gem.max_tokens_per_turn", "320"
    ]  # fmt: skip
    with mock.patch.dict(os.environ):
        check_mistakes("openrlhf", training[3:], MISTAKES, capsys)
        assert main(["doctor", "--trainer", "openrlhf", "--", *training[3:]]) == 0
    plan = [line for line in capsys.readouterr().out.splitlines() if line.startswith("plan ")]
    (shown,) = [block.code for block in blocks(PAGE) if block.code.startswith("plan ")]
    assert " ".join(plan).split() == shown.split()
    assert not ray.is_initialized()
