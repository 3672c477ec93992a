"""verl's config parser and GEM's checks accept the commands of the documentation and of the example."""

from __future__ import annotations

import shlex
from typing import Any

import gem_verl.estimators  # noqa: F401
import pytest
from gem_verl._options import check_config, read_algorithm
from verl.trainer.ppo.utils import create_rl_dataset

from tests.docs.blocks import command_lines
from tests.trainers.example import load_example
from tests.trainers.verl.configs import verl_config

USER = [
    "data.train_files=train.parquet",
    "data.val_files=test.parquet",
    "data.train_batch_size=256",
    "data.max_response_length=512",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct",
    "actor_rollout_ref.rollout.name=vllm",
    "algorithm.kl_ctrl.kl_coef=0.001",
]
"""Overrides of a user who has trained on files, instead of the page's ``"$@"``."""


DOCUMENTED = [
    [part for word in words[3:] for part in (USER if word == "$@" else [word])]
    for words in command_lines("docs/trainers/verl.md", "python", "-m", "verl.trainer.main_ppo")
]


def check(overrides: list[str]) -> Any:
    config = verl_config(*overrides)
    check_config(config)
    for files in (config.data.train_files, config.data.val_files):
        assert len(create_rl_dataset(files, config.data, None, None)) > 0
    return config


ESTIMATOR_ONLY, COMMANDS = [], []
for _command in DOCUMENTED:
    if any("gsm8k/train.parquet" in word for word in _command):
        continue  # test_journey.py makes its files
    (COMMANDS if "trainer.v1.trainer_mode=gem_sync" in _command else ESTIMATOR_ONLY).append(_command)


@pytest.mark.parametrize("overrides", COMMANDS, ids=["overrides", "one-gpu", "eight-gpus"])
def test_a_documented_command_is_a_config(overrides: list[str]) -> None:
    config = check(overrides)
    assert len(create_rl_dataset(config.data.train_files, config.data, None, None)) == 10_000


def test_the_command_with_the_estimator_alone_is_a_config() -> None:
    (overrides,) = ESTIMATOR_ONLY
    algorithm = verl_config(*overrides).algorithm
    choice = read_algorithm(algorithm, algorithm.adv_estimator)
    assert (choice.name, choice.gamma) == ("rebn", 0.9)


def test_the_overrides_are_at_most_ten() -> None:
    overrides = COMMANDS[0]
    assert len(overrides) - overrides.index("algorithm.adv_estimator=rebn") <= 10


def test_the_example_is_an_environment_and_a_config(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load_example(monkeypatch, capsys)
    words = shlex.split(module.train("verl"))
    check(words[words.index("verl.trainer.main_ppo") + 1 :])
