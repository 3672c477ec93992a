"""A user of GRPO with questions like GSM8K's adds a game beside them, as the page says.

After the imports it takes about 1 s on two CPU cores, without training.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from unittest import mock

import gem_openrlhf.agent
import pytest
import ray

from gem_core.cli import main
from tests.docs.blocks import commands
from tests.trainers.preflight import check_mistakes, write_questions

PAGE = "docs/trainers/openrlhf.md"
USER = shlex.split(
    "--actor.model_name_or_path org/model --reward.model_name_or_path org/reward --vllm.num_engines 1 "
    "--rollout.batch_size 64 --rollout.n_samples_per_prompt 4 --algo.advantage.estimator group_norm "
    "--algo.kl.init_coef 0 --data.prompt_dataset gsm8k/train.jsonl --data.input_key question "
    "--data.label_key answer"
)
"""Flags of a user of GRPO."""
MISTAKES = {
    ("--gem.max_turn", "12", "--gem.max_turnz", "8"): "--gem.max_turnz",
    ("--algo.advantage.estimator", "gem_gpro"): "invalid choice: 'gem_gpro'",
    ("--gem.wrappers", "concatenate"): "concatenate",
    ("--rollout.n_samples_per_prompt", "1"): "--rollout.n_samples_per_prompt",
    ("--data.prompt_dataset", "id.jsonl"): "Did you mean game:GuessTheNumber-v0-easy",
    ("--data.prompt_dataset", "argument.jsonl"): "question_kez",
    ("--data.prompt_dataset", "file.jsonl"): "none.jsonl",
    ("--data.prompt_dataset", "extra.jsonl"): "pip install 'gem-core[rg]'",
}


def test_the_page_is_accepted_and_mistakes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path)
    values = {
        '"$@"': shlex.join(USER),
        "--num 10000": "--num 400",
        "$PWD": str(tmp_path),
        "$(gem-core path openrlhf-agent)": gem_openrlhf.agent.__file__,
    }
    *exports, training = commands(PAGE, "gsm8k/train.jsonl", values)
    for words in exports:
        assert words[:4] == ["gem-core", "export", "--to", "openrlhf"]
        assert main(words[1:]) == 0
    train, evaluation = (Path(name).read_text() for name in ("train.jsonl", "eval.jsonl"))
    sources = [json.loads(line)["datasource"].split("(")[0] for line in train.splitlines()]
    assert sources.count("math:GSM8K") == pytest.approx(300, abs=60)
    assert '"math:GSM8K' in evaluation
    assert training[:3] == ["python3", "-m", "gem_openrlhf.train_ppo_ray"]
    for name, (text, wrong) in {
        "id": ("game:GuessTheNumber", "game:GuesTheNumber"),
        "argument": ("question_key", "question_kez"),
        "file": ("gsm8k/train.jsonl", "gsm8k/none.jsonl"),
        "extra": ("game:GuessTheNumber-v0-easy", "rg:leg_counting"),
    }.items():
        Path(f"{name}.jsonl").write_text(train.replace(text, wrong))
    with mock.patch.dict(os.environ):
        check_mistakes("openrlhf", training[3:], MISTAKES, capsys)
    assert not ray.is_initialized()
