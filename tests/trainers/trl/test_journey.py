"""A user of GRPO with questions like GSM8K's adds a game beside them, as the page says.

After the imports it takes about 1 s on two CPU cores, including a step with a tiny model.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, blocks, commands
from tests.trainers.preflight import check_mistakes, write_questions
from tests.trainers.trl import harness
from tests.trainers.trl.test_docs import MODEL, changed_script, small

PAGE = "docs/trainers/trl.md"
USER = shlex.split(
    "--model_name_or_path org/no-such-model --output_dir both --use_cpu true --bf16 false "
    "--num_generations 4 --per_device_train_batch_size 4 --max_completion_length 4096 --gem_num_tasks 64"
)
"""Flags of a user of GRPO."""
QUESTIONS = "math:GSM8K(dataset_name='gsm8k/{}', question_key='question', symbolic=False)"
MISTAKES = {
    ("--gem_env", "game:GuesTheNumber-v0-easy"): "Did you mean game:GuessTheNumber-v0-easy",
    ("--gem_env", QUESTIONS.format("train.jsonl").replace("key", "kez")): "question_kez",
    ("--gem_env", QUESTIONS.format("none.jsonl")): "none.jsonl",
    ("--gem_env", "rg:leg_counting"): "pip install 'gem-core[rg]'",
    ("--gem_max_turn", "8", "--gem_max_turnz", "8"): "--gem_max_turnz",
    ("--gem_estimator", "gpro"): "grpo",
    ("--reward_weights", "1.0"): "reward_weights",
    ("--num_generations", "1", "--per_device_train_batch_size", "1"): "generations",
}


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the user's files in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path)


@pytest.mark.usefixtures("rows")
def test_the_command_of_the_page_is_accepted_and_mistakes_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (words,) = commands(PAGE, "gsm8k/train.jsonl", {'"$@"': shlex.join(USER)})
    assert words[:5] == ["gem-core", "doctor", "--trainer", "trl", "--"]
    check_mistakes("trl", words[5:], MISTAKES, capsys)


@pytest.mark.usefixtures("rows")
def test_the_script_of_the_page_trains_on_questions_and_a_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script,) = [block.code for block in blocks(PAGE) if block.language == "python" and "gsm8k" in block.code]
    small(monkeypatch, tmp_path)
    names: dict[str, Any] = {}
    code = script.replace(MODEL, harness.MODEL).replace("10_000", "16")
    exec(compile(code, PAGE, "exec"), names)
    trainer = names["trainer"]
    prompts = [row["prompt"] for row in trainer.train_dataset]
    assert 0 < sum("math:GSM8K" in prompt for prompt in prompts) < 16
    (entry,) = [entry for entry in trainer.state.log_history if "gem/turns" in entry]
    assert entry["gem/error_rate"] == 0


@pytest.mark.usefixtures("rows")
def test_a_run_of_the_user_with_a_game_beside_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script of the page trains on every question with the user's reward function, and on the game."""
    script, added = changed_script("    train_dataset=[rows")
    assert added == 6
    small(monkeypatch, tmp_path)
    names: dict[str, Any] = {}
    code = script.replace(MODEL, harness.MODEL).replace("trainer.train()", "trainer.shuffle_dataset = False")
    exec(compile(code, PAGE, "exec"), names)
    trainer = names["trainer"]
    assert trainer.train_dataset["gem_source"].count("train_dataset[0]") == 16
    trainer.train()
    (entry,) = [entry for entry in trainer.state.log_history if "gem/turns" in entry]
    counts = {name: value for name, value in entry.items() if "/played/" in name or "/failed/" in name}
    assert counts == {
        "gem/played/train_dataset[0]": 6, "gem/failed/train_dataset[0]": 0,
        "gem/played/game:GuessTheNumber-v0-easy": 2, "gem/failed/game:GuessTheNumber-v0-easy": 0,
    }  # fmt: skip
    page = (ROOT / PAGE).read_text()
    for name in ("rewards/exact/mean", "rewards/episode_return/mean", "gem/return", "gem/filled"):
        assert name in entry
        assert f"`{name}`" in page
