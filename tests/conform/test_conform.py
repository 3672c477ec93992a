"""The batches of `gem-core conform` have exact answers, and a wrong estimator gets a bad grade."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

import torch

from gem_core.advantages import get_estimator
from gem_core.trainers import SupportedTrainer, TrainerPlugin
from gem_lab import _discovery, main
from gem_lab._conform import ExactRows, GradedEstimator, grade_estimators, read_batches
from gem_lab._conform._grade import own_estimators
from tests.docs.test_env_tables import load


def test_the_file_is_what_the_tool_writes() -> None:
    tool: Any = load("conformance_batches")
    assert read_batches() == tool.batches()
    assert tool.FILE.read_text().startswith(f'{{"format": "{tool.FORMAT}"')


def test_the_page_shows_the_recorded_grades() -> None:
    tool: Any = load("conform_table")
    page = tool.PAGE.read_text("utf-8")
    command = "python tools/conform_table.py"
    assert tool.fill(page, json.loads(tool.RECORD.read_text("utf-8"))) == page, f"run `{command}`"


@pytest.mark.parametrize("batch", read_batches(), ids=lambda batch: batch["name"])
def test_the_played_episodes_have_the_rows_of_the_batch(batch: dict[str, Any]) -> None:
    rows = ExactRows(batch)
    played = [row for episode in rows.played for row in episode.rows(pad_id=0)]
    assert [list(row.turns) for row in played] == rows.turns
    for row, ids, rewards in zip(played, rows.turn_ids.tolist(), rows.rewards.tolist(), strict=True):
        if row.turns:
            padding = len(ids) + 1 - len(row)
            assert [-1, *ids] == row.turn_ids + [-1] * padding
            assert [0.0, *rewards] == pytest.approx(row.rewards + [0.0] * padding)
    indices = [[float(turn) for turn in range(len(episode.turns))] for episode in rows.played]
    spread = rows.spread(indices)
    for values, turns, ids in zip(spread.tolist(), rows.turns, rows.turn_ids.tolist(), strict=True):
        assert values == [turns[turn] if turn >= 0 else 0.0 for turn in ids]


@pytest.mark.parametrize(
    ("batch", "kind", "wanted"),
    [
        ("uneven groups", "leave one out", [["1"], ["-1/2"], ["-1/2"], ["1"], ["-1"]]),
        ("turn rewards", "mean of turns, gamma=1/2", [["1/2", "-1/2", "-1/2"], ["0", "1/2"]]),
        ("failed episode", "group mean", [["1/2"], ["-1/2"]]),
        ("rewritten", "group mean", [["1/2"] * 3, ["-1/2"]]),
        ("sub-agent", "mean of turns, gamma=1", [["0", "0", "0", "1/2"], ["-1/2"]]),
        ("compaction", "mean of turns, gamma=1/2", [["0", "1/2", "1/2"], ["-1/2", "-1/2"]]),
        ("rejected attempt", "leave one out", [["1", "1"], ["-1"]]),
    ],
)
def test_answers_by_hand(batch: str, kind: str, wanted: list[list[str]]) -> None:
    (found,) = (one["advantages"][kind] for one in read_batches() if one["name"] == batch)
    assert found == wanted


def test_gem_cores_estimators_are_right() -> None:
    grades = grade_estimators(own_estimators())
    assert len(grades) == 4
    assert len(read_batches()) == 17
    assert {found for batches in grades.values() for found in batches.values()} == {"right"}


def by_row(rows: ExactRows) -> torch.Tensor:
    """Leave one out over rows, each with the score of its episode: the most common fault."""
    tensors = get_estimator("rloo").tensors
    return tensors(rows.scores(), rows.mask, rows.turn_ids, group_ids=rows.groups).advantages


def broken(rows: ExactRows) -> torch.Tensor:
    raise ValueError("no")


def test_rows_counted_as_episodes_are_wrong() -> None:
    grades = grade_estimators(
        {
            "by row": GradedEstimator("leave one out", by_row),
            "zeros": GradedEstimator("group mean", lambda rows: rows.mask * 0),
            "broken": GradedEstimator("group mean", broken),
        }
    )
    several = {
        "turn rows",
        "rewritten",
        "rewritten, longer turns",
        "rows in turns",
        "sub-agent",
        "compaction",
    }
    wrong = {batch for batch, found in grades["by row"].items() if found == "wrong"}
    assert wrong >= several
    assert not wrong & {"one turn", "uneven groups", "turn rewards", "adjacent turns", "failed episode"}
    assert grades["zeros"]["one turn"] == "wrong"
    assert grades["zeros"]["equal scores"] == "right"
    assert set(grades["broken"].values()) == {"refused"}


@pytest.mark.parametrize(
    ("estimator", "wrong"),
    [
        ("gem-core dr_grpo", set()),
        (
            "gem-core rebn, gamma=1/2",
            {
                "turn rewards",
                "adjacent turns",
                "alone in its group",
                "equal scores",
                "rewritten, longer turns",
                "rows in turns",
                "sub-agent",
            },
        ),
    ],
)
def test_only_advantages_per_turn_tell_the_turns_of_a_row_apart(estimator: str, wrong: set[str]) -> None:
    def reverse(compute: Any, rows: ExactRows) -> torch.Tensor:
        advantages: torch.Tensor = compute(rows)
        for row_advantages, ids in zip(advantages, rows.turn_ids, strict=True):
            turns = [row_advantages[ids == turn].mean() for turn in range(int(ids.max()) + 1)]
            for turn, value in enumerate(reversed(turns)):
                row_advantages[ids == turn] = value
        return advantages

    graded = own_estimators()[estimator]
    reversed_turns = graded._replace(compute=partial(reverse, graded.compute))
    (grades,) = grade_estimators({estimator: reversed_turns}).values()
    assert {batch for batch, grade in grades.items() if grade == "wrong"} == wrong


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--json"]) == 0
    grades = json.loads(capsys.readouterr().out)
    assert grades["gem-core rloo"]["rewritten"] == "right"
    assert main(["conform", "--batches"]) == 0
    assert json.loads(capsys.readouterr().out) == read_batches()
    assert main(["conform"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["gem-core", "dr_grpo", "17", "of", "17"]
    assert main(["conform", "--trainer", "nobody"]) == 2


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("conform", ["conform", "--trainer", "acme"]),
        ("exporter", ["export", "--to", "acme", "--env", "game:GuessTheNumber-v0", "--out", "rows"]),
        ("preflight", ["doctor", "--trainer", "acme", "--", "x"]),
        ("step_recorder", ["consistency", "--run", "--trainers", "acme"]),
    ],
)
def test_a_trainer_that_cannot_be_imported_is_one_line(
    part: str,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "acme_part.py").write_text("import a_package_of_gpus\n")
    supported = SupportedTrainer("Acme", "gem_acme", "pytest", ">=1,<99", "")
    own: Any = {part: "acme_part:run"}
    monkeypatch.setattr(_discovery, "_registered", {"acme": TrainerPlugin(supported, **own)})
    assert main(words) == 2
    assert "No module named 'a_package_of_gpus'; install all" in capsys.readouterr().err


@pytest.mark.parametrize(("compute", "status"), [(by_row, 1), (broken, 0)])
def test_a_trainer_that_prints(
    compute: Any, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def estimators() -> Any:
        print("accelerator: cpu")
        return {"ours": GradedEstimator("leave one out", compute, True)}

    plugin = TrainerPlugin(SupportedTrainer("Acme", "gem_acme", "acme", ">=1,<2", ""), conform=estimators)
    monkeypatch.setattr(_discovery, "load_trainer", {"acme": plugin}.get)
    assert main(["conform", "--trainer", "acme", "--json"]) == status
    printed = capsys.readouterr()
    assert "ours" in json.loads(printed.out)
    assert printed.err == "accelerator: cpu\n"
