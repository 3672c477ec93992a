"""`gem-core doctor --trainer oat` checks the flags of a run without starting it."""

from __future__ import annotations

import pytest
import torch

from tests.trainers.preflight import SILENT_SERVER, check_mistakes, own_words, problem_of

ACCEPTED = [
    "--gpus",
    "8",
    "--collocate",
    "--pretrain",
    "org/no-such-model",
    "--rollout_batch_size",
    "128",
    "--rollout_batch_size_per_device",
    "16",
    "--train_batch_size",
    "128",
    "--train_batch_size_per_device",
    "1",
    "--env-id",
    "game:GuessTheNumber-v0-easy",
    "--gamma",
    "0.9",
]
MISTAKES = {
    ("--env-id", "game:GuesTheNumber-v0"): "GuessTheNumber",
    ("--env-id", "rg:leg_counting"): "pip install 'gem-core[rg]'",
    ("--gama", "0.9"): "--gama",
    ("--gamma", "1.2"): "gamma=1.2: expected a number from 0 to 1",
    ("--estimator", "rebm"): "rebn",
    ("--rollout_batch_size", "100"): "is not a multiple of",
}


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    check_mistakes("oat", ACCEPTED, MISTAKES, capsys)


def test_a_custom_environment_is_accepted(
    own_id: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert problem_of("oat", [*ACCEPTED, *own_words("oat", own_id)], capsys) is None
    assert "Gold" in str(problem_of("oat", [*ACCEPTED, "--env-id", own_id.replace("Cold", "Gold")], capsys))


def test_a_server_must_answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    problem = problem_of("oat", [*ACCEPTED, *own_words("oat", SILENT_SERVER)], capsys)
    assert "Connection refused" in str(problem)
