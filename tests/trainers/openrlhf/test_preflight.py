"""`gem-core doctor --trainer openrlhf` checks a command up to the start of Ray."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import gem_openrlhf.agent
import pytest
import ray

from tests.trainers.openrlhf.conftest import GUESS
from tests.trainers.openrlhf.data import write_rows
from tests.trainers.preflight import SILENT_SERVER, check_mistakes, own_words, problem_of

ACCEPTED = (
    "--actor.model_name_or_path org/model --rollout.n_samples_per_prompt 4 --rollout.batch_size 64 "
    "--algo.advantage.estimator rebn --algo.advantage.gamma 0.9 --algo.kl.init_coef 0 --vllm.num_engines 1 "
    f"--train.agent_func_path {gem_openrlhf.agent.__file__} --data.prompt_dataset train.jsonl "
    "--data.input_key input --data.label_key label --gem.max_turns 8"
).split()
MISTAKES = {
    ("--gem.max_turn", "8", "--gem.max_turns_", "8"): "--gem.max_turns_",
    ("--algo.advantage.estimator", "rebm"): "invalid choice: 'rebm'",
    ("--algo.advantage.gamma", "1.2"): "gamma=1.2: expected a number from 0 to 1",
    ("--gem.wrappers", "concatenate"): "concatenate",
    ("--data.prompt_dataset", "wrong.jsonl"): "GuessTheNumber",
    ("--rollout.micro_batch_size", "999999"): "number of sample batches",  # OpenRLHF's own check
}


def test_mistakes_are_named_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "train.jsonl", [GUESS], 2)
    rows = (tmp_path / "train.jsonl").read_text()
    (tmp_path / "wrong.jsonl").write_text(rows.replace("GuessTheNumber", "GuesTheNumber"))
    with mock.patch.dict(os.environ):
        check_mistakes("openrlhf", ACCEPTED, MISTAKES, capsys)
    assert not ray.is_initialized()


def test_a_custom_environment_is_accepted(
    own_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_words("openrlhf", own_id)
    with mock.patch.dict(os.environ):
        assert problem_of("openrlhf", ACCEPTED, capsys) is None
        rows = Path("train.jsonl").read_text()
        Path("train.jsonl").write_text(rows.replace("Cold", "Gold"))
        assert "Gold" in str(problem_of("openrlhf", ACCEPTED, capsys))


def test_a_server_must_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_words("openrlhf", SILENT_SERVER)
    with mock.patch.dict(os.environ):
        assert "Connection refused" in str(problem_of("openrlhf", ACCEPTED, capsys))
