"""A user of GRPO with rows like GSM8K's adds a game beside them, as the page says.

It takes about 20 s on two CPU cores, not counting the training run of the session `verl-full`.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import ray

from gem_core.cli import main
from tests.docs.blocks import commands
from tests.trainers import evidence
from tests.trainers.preflight import SILENT_SERVER, check_mistakes, own_words, problem_of
from tests.trainers.verl import harness
from tests.trainers.verl.spied import updates

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
"""Overrides of a user of GRPO."""
OVERRIDES = {'"$@"': shlex.join(USER)}

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


def write_questions(count: int) -> None:
    """Write the user's files in the current folder."""
    Path("gsm8k").mkdir()
    for split in ("train", "test"):
        rows = [question(number, split) for number in range(count)]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), f"gsm8k/{split}.parquet")


@pytest.fixture
def overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the user's files, follow the page, and return the overrides of its training command."""
    monkeypatch.chdir(tmp_path)
    write_questions(16)
    *exports, training = commands(PAGE, "game-train.parquet", OVERRIDES)
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
    (words,) = commands(PAGE, "gem-core doctor --trainer verl", OVERRIDES)
    assert words[1:5] == ["doctor", "--trainer", "verl", "--"]


def test_a_custom_environment_is_accepted(own_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    accepted = [*USER, "algorithm.adv_estimator=rebn", "trainer.v1.trainer_mode=gem_sync", *GENERATED]
    assert problem_of("verl", [*accepted, *own_words("verl", own_id)], capsys) is None
    wrong = own_words("verl", own_id.replace("Cold", "Gold"))
    assert "Gold" in str(problem_of("verl", [*accepted, *wrong], capsys))


def test_a_server_must_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*USER, "algorithm.adv_estimator=rebn", "trainer.v1.trainer_mode=gem_sync", *GENERATED]
    problem = problem_of("verl", [*words, *own_words("verl", SILENT_SERVER)], capsys)
    assert "Connection refused" in str(problem)


@pytest.mark.full
def test_questions_and_a_game_are_trained_in_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: Path, warm_tokenizer: Any
) -> None:
    """The batch consists of two questions and two games, with two samples each."""
    monkeypatch.chdir(tmp_path)
    write_questions(2)
    values = {'"$@"': "", "--num 2000": "--num 2", "--num 128": "--num 2"}
    *exports, training = commands(PAGE, "game-train.parquet", values)
    assert all(main(words[1:]) == 0 for words in exports)
    gem = [word.replace("[", f"[{tmp_path}/").replace(",", f",{tmp_path}/") for word in training[3:]]
    run = harness.run_verl(tmp_path / "run", warm, "trainer.total_training_steps=1", gem=gem).check()
    (update,) = updates(run.spy)
    played = evidence.played(run.spy, warm_tokenizer)
    assert len(update.rows) == 8
    assert len(played) >= 4  # validation plays, too
