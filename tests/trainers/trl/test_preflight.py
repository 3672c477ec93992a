"""`gem-core doctor --trainer trl` checks the flags of TRL's script without a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainers.preflight import SILENT_SERVER, check_mistakes, own_words, problem_of

ACCEPTED = [
    "--model_name_or_path",
    "org/no-such-model",
    "--use_cpu",
    "true",
    "--bf16",
    "false",
    "--num_generations",
    "4",
    "--per_device_train_batch_size",
    "4",
    "--gem_env",
    "game:GuessTheNumber-v0-easy",
    "--gem_num_tasks",
    "8",
    "--gem_gamma",
    "0.9",
]
MISTAKES = {
    ("--gem_env", "game:GuesTheNumber-v0"): "GuessTheNumber",
    ("--gem_env", "rg:leg_counting"): "pip install 'gem-core[rg]'",
    ("--gem_gama", "0.9"): "--gem_gama",
    ("--gem_gamma", "1.2"): "gamma=1.2: expected a number from 0 to 1",
    ("--gem_estimator", "rebm"): "rebn",
    ("--gem_context", "rebuild"): "use append",
    ("--scale_rewards", "batch"): "use the options of the estimator",
    ("--num_generations", "3"): "3",  # TRL's own check
}


def test_mistakes_are_named_before_a_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_mistakes("trl", [*ACCEPTED, "--output_dir", str(tmp_path)], MISTAKES, capsys)


def test_a_custom_environment_is_accepted(own_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert problem_of("trl", [*ACCEPTED, "--output_dir", "out", *own_words("trl", own_id)], capsys) is None
    wrong = own_words("trl", own_id.replace("Cold", "Gold"))
    assert "Gold" in str(problem_of("trl", [*ACCEPTED, "--output_dir", "out", *wrong], capsys))


def test_a_server_must_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*ACCEPTED, "--output_dir", "out", *own_words("trl", SILENT_SERVER)]
    assert "Connection refused" in str(problem_of("trl", words, capsys))
