"""`gem-core doctor --trainer rl2` checks the overrides of a run without starting it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gem_rl2.rows import write
from gem_rl2.upstream import find

from gem_core.tasks import EnvChoice, make_tasks
from tests.trainers.preflight import SILENT_SERVER, check_mistakes, own_words, problem_of


def accepted() -> list[str]:
    """Return overrides that are accepted with rows in ``train.jsonl``."""
    section = find().data_section("train")
    return [
        f"{section}.path=train.jsonl",
        f"{section}.prompts_per_rollout=16",
        f"{section}.responses_per_prompt=4",
        f"{'rollout' if find().is_index else 'rollout.train'}.dynamic_filtering=false",
        "adv.estimator=rebn",
        "adv.gamma=0.9",
        "actor.model_name=org/no-such-model",
    ]


def test_mistakes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(make_tasks([EnvChoice("game:GuessTheNumber-v0-easy")], 4), "train.jsonl")
    rows = Path("train.jsonl").read_text()
    Path("wrong.jsonl").write_text(rows.replace("GuessTheNumber", "GuesTheNumber"))
    section = find().data_section("train")
    mistakes = {
        (f"{section}.path=wrong.jsonl",): "GuessTheNumber",
        ("+gem.max_turn=8",): "unknown option 'gem.max_turn'",
        ("adv.gama=0.9",): "gama",
        ("adv.gamma=1.2",): "gamma=1.2: expected a number from 0 to 1",
        ("adv.estimator=rebm",): "rebn",
    }
    check_mistakes("rl2", accepted(), mistakes, capsys)


def test_a_custom_environment_is_accepted(
    own_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_words("rl2", own_id)
    assert problem_of("rl2", accepted(), capsys) is None
    Path("train.jsonl").write_text(Path("train.jsonl").read_text().replace("Cold", "Gold"))
    assert "Gold" in str(problem_of("rl2", accepted(), capsys))


def test_a_server_must_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own_words("rl2", SILENT_SERVER)
    assert "Connection refused" in str(problem_of("rl2", accepted(), capsys))
