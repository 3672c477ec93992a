"""Records, and the results of comparing them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from gem_core.errors import TraceError
from gem_lab import main
from gem_lab._cli import FAILED, MISTAKE, OK
from gem_lab.consistency import Played, Record, compare
from gem_lab.consistency._record import read_records

NAN = float("nan")


def core() -> Record:
    def played(seed: int, first: int, advantages: list[float]) -> Played:
        return Played(
            "game", seed, True, [first, 2, 3, 4, 5], [-1, 0, -1, 1, 1], [0.1, 1.0], True, False, "terminated",
            advantages,
        )  # fmt: skip

    failed = Played("game", 3, False, rewards=[], terminated=False, truncated=True, stop_reason="env_error")
    return Record(
        "core", {"gem-core": "1"}, "c", "hash", [played(1, 1, [1.0, -2.0]), played(1, 9, [0.5, 0.5]), failed]
    )


def other() -> Record:
    made = copy.deepcopy(core())
    made.trainer, made.gradient, made.versions = "verl", 1e-7, {"verl": "0.9.1"}
    made.episodes.reverse()
    return made


def test_the_same_in_another_order_is_equal() -> None:
    found = compare(core(), other())
    assert found.equal
    assert [found.levels[n].verdict for n in (1, 2, 3)] == ["equal", "equal", "equal (1.0e-07)"]


def test_rewards_are_compared_as_float32() -> None:
    made = other()
    made.episodes[1].rewards = [0.10000000149, 1.0]
    assert compare(core(), made).levels[1].equal
    made.episodes[1].rewards = [0.1001, 1.0]
    assert "rewards differ by up to 0.0001" in compare(core(), made).levels[1].differences[0]


@pytest.mark.parametrize(
    ("field", "value", "level"),
    [
        ("token_ids", [9, 2, 3, 4, 6], 1),
        ("turn_ids", [-1, 0, 1, 1, 1], 1),
        ("row_lengths", [3, 2], 1),
        ("rewards", [0.1], 1),
        ("stop_reason", "max_turns", 1),
        ("truncated", True, 1),
        ("trainable", False, 1),
        ("advantages", [0.5, 0.6], 2),
        ("advantages", [0.5], 2),
        ("spread", 0.1, 2),
        ("rewards", [NAN, 1.0], 1),
        ("advantages", [NAN, 0.5], 2),
        ("advantages", [0.5, NAN], 2),
        ("advantages", [NAN, NAN], 2),
        ("spread", NAN, 2),
    ],
)
def test_every_difference_is_found_at_its_level(field: str, value: object, level: int) -> None:
    made = other()
    setattr(made.episodes[1], field, value)
    found = compare(core(), made)
    assert not found.equal
    assert not found.levels[level].equal
    assert found.levels[level].differences


def test_other_findings() -> None:
    for change, level, text in (
        ({"gradient": 2e-4}, 3, "differs by 0.0002"),
        ({"model": "other"}, 1, "the weights differ: other"),
        ({"cases": {"rebn, gamma 1": 0.1}}, 2, "rebn, gamma 1: advantages differ"),
        ({"cases": {"rebn, gamma 1": NAN}}, 2, "rebn, gamma 1: advantages differ by up to inf"),
        ({"gradient": NAN}, 3, "differs by nan"),
        ({"episodes": other().episodes[:2]}, 1, "1 episodes instead of 2"),
        ({"episodes": []}, 2, "advantages differ"),
    ):
        made = other()
        for name, value in change.items():
            setattr(made, name, value)
        assert any(text in line for line in compare(core(), made).levels[level].differences)
    made = other()
    made.gradient = None
    assert compare(core(), made).levels[3].verdict == "not run"


@pytest.mark.parametrize("values", [[0.0, NAN, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0, NAN]])
def test_a_token_without_a_log_prob_is_visible_in_the_spread(values: list[float]) -> None:
    made = other()
    made.episodes[1].read_advantages(values)
    assert not compare(core(), made).levels[2].equal


def test_a_field_that_is_not_carried_is_named_and_not_compared() -> None:
    made = other()
    made.episodes[1].stop_reason = None
    made.not_carried = {"stop_reason": "no field for it"}
    level = compare(core(), made).levels[1]
    assert level.equal
    assert level.not_carried == {"stop_reason": "no field for it"}


def test_records_on_disk(tmp_path: Path) -> None:
    for made in (core(), other()):
        made.write(tmp_path / f"{made.trainer}.json")
    assert read_records(tmp_path) == {"core": core(), "verl": other()}
    for text in ("", "[]", '{"schema_version": 1}', '{"schema_version": 9}'):
        (tmp_path / "verl.json").write_text(text)
        with pytest.raises(TraceError, match=r"verl\.json"):
            read_records(tmp_path)


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["consistency", "--records", str(tmp_path)]) == MISTAKE
    assert "holds no records" in capsys.readouterr().err
    assert main(["consistency", "--records", str(tmp_path), "--trainers", "verk"]) == MISTAKE
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROLL_HOME", raising=False)
    assert main(["consistency", "--run", "--trainers", "roll"]) == MISTAKE
    assert "ROLL is not installed" in capsys.readouterr().err
    for made in (core(), other()):
        made.write(tmp_path / f"{made.trainer}.json")
    page = tmp_path / "page.html"
    assert main(["consistency", "--records", str(tmp_path), "--html", str(page)]) == OK
    shown = capsys.readouterr().out
    assert "verl" in shown
    assert "equal (1.0e-07)" in shown
    assert "not run" in shown  # the other trainers
    assert "equal <span class='number'>(1.0e-07)</span>" in page.read_text()
    assert (
        main(["consistency", "--records", str(tmp_path), "--trainers", "verl", "oat"]) == FAILED
    )  # oat has no record
    capsys.readouterr()
    assert (
        main(["consistency", "--records", str(tmp_path), "--trainers", "verl", "--level", "3", "--json"])
        == OK
    )
    assert list(json.loads(capsys.readouterr().out)["verl"]["levels"]) == ["3"]
    wrong = other()
    wrong.episodes[1].advantages = [0.0, 0.0]
    wrong.write(tmp_path / "verl.json")
    assert main(["consistency", "--records", str(tmp_path)]) == FAILED
    assert "verl, level 2: advantages differ" in capsys.readouterr().out
