"""A user of GRPO with rows like GSM8K's adds a game beside them, as the page says."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import ray

from gem_core.cli import main
from tests.docs.blocks import blocks
from tests.trainers.preflight import check_mistakes

PAGE = "docs/trainers/verl.md"
USER = [
    "data.train_batch_size=8",
    "data.max_prompt_length=512",
    "data.max_response_length=1024",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
    "trainer.n_gpus_per_node=1",
]
"""Overrides of a user of GRPO, instead of the page's ``"$@"``."""

GENERATED = [
    "data.custom_cls.path=pkg://gem_verl.dataset",
    "data.custom_cls.name=GemDataset",
    "data.val_files=['game:Mastermind-v0-easy']",
]


def question(number: int, split: str) -> dict[str, Any]:
    """Return a row with the columns that verl's preprocessing of GSM8K writes."""
    text, answer = f"What is {number} + {number}?", str(2 * number)
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": text}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": split, "index": number, "answer": f"#### {answer}", "question": text},
    }


def commands(section: str) -> list[list[str]]:
    """Return the words of the page's commands in the block with a text, with the user's overrides."""
    (code,) = [block.code for block in blocks(PAGE) if block.language == "bash" and section in block.code]
    lines = [shlex.split(line) for line in code.replace("\\\n", " ").splitlines()]
    return [[part for word in line for part in (USER if word == "$@" else [word])] for line in lines]


@pytest.fixture
def overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the user's files, follow the page, and return the overrides of its training command."""
    monkeypatch.chdir(tmp_path)
    Path("gsm8k").mkdir()
    for split in ("train", "test"):
        rows = [question(number, split) for number in range(16)]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), f"gsm8k/{split}.parquet")
    *exports, training = commands("game-train.parquet")
    for words in exports:
        assert words[:4] == ["gem-core", "export", "--to", "verl"]
        assert main(words[1:]) == 0
    assert training[:3] == ["python", "-m", "verl.trainer.main_ppo"]
    return training[3:]


def test_the_page_is_accepted_and_mistakes_are_named(
    overrides: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    mistakes = {
        ("+gem.max_turn=3",): "unknown option 'gem.max_turn'",
        ("algorithm.gama=0.9",): "gama",
        ("algorithm.gamma=1.2",): "algorithm.gamma=1.2: expected a number from 0 to 1",
        ("trainer.v1.trainer_mode=gem_synk",): "Unknown trainer 'gem_synk'",
        ("algorithm.adv_estimator=gem_gpro",): "gem_grpo",
        ("algorithm.norm_adv_by_std_in_grpo=False",): "has no effect on gem_grpo",
        ("data.train_batch_size=7",): "ppo_mini_batch_size",
        ("data.val_files=[gsm8k/none.parquet]",): "none.parquet",
        ("+gem.wrappers=concatenate",): "concatenate",
        (*GENERATED, "data.train_files=['game:GuesTheNumber-v0']"): "GuessTheNumber",
        (*GENERATED, "data.train_files=['game:GuessTheNumber-v0(max_numbr=9)']"): "max_numbr",
    }
    check_mistakes("verl", overrides, mistakes, capsys)
    assert not ray.is_initialized()


def test_the_short_check_of_the_page_is_a_command() -> None:
    (words,) = commands("gem-core doctor --trainer verl")
    assert words[1:5] == ["doctor", "--trainer", "verl", "--"]
