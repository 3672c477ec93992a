from __future__ import annotations

import json
import subprocess
import sys
import types

import pytest

from gem_lab import main

EASY = "game:GuessTheNumber-v0-easy"


def export(tmp_path, *argv: str) -> list[dict]:
    out = tmp_path / "rows.jsonl"
    assert main(["export", "--to", "tasks", "--env", EASY, "--out", str(out), *argv]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_rows(tmp_path, capsys):
    rows = export(tmp_path, "--num", "3", "--group-size", "2", "--seed", "5")
    assert len(rows) == 6
    assert all(set(row) == {"env_id", "env_kwargs", "seed", "index", "item"} for row in rows)
    assert [row["index"] for row in rows] == [0, 0, 1, 1, 2, 2]
    assert "wrote 6 rows" in capsys.readouterr().err
    assert export(tmp_path, "--num", "3", "--group-size", "2", "--seed", "5") == rows


def test_evaluation_rows_share_no_seed(tmp_path):
    train = {row["seed"] for row in export(tmp_path, "--num", "50")}
    for_eval = {row["seed"] for row in export(tmp_path, "--num", "50", "--split", "eval")}
    assert len(train) == len(for_eval) == 50
    assert not train & for_eval


def test_without_a_number_every_item_is_there_once(tmp_path, capsys):
    shop = ["--env", "service:Shop-v0(max_turns=20)"]
    out = tmp_path / "rows.jsonl"
    items = []
    for words in ([], ["--split", "eval"], ["--split", "eval", "--num", "50"]):
        assert main(["export", "--to", "tasks", *shop, "--out", str(out), *words]) == 0
        items.append([json.loads(line)["item"] for line in out.read_text().splitlines()])
    assert sorted(items[0] + items[1]) == list(range(70))
    assert items[2] == items[1]
    assert (
        f"wrote {len(items[2])} rows to {out}; there are no more evaluation items" in capsys.readouterr().err
    )
    assert main(["export", "--to", "tasks", *shop, "--env", EASY, "--out", str(out)]) == 2
    assert f"set --num: {EASY} has no items" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("format", "name", "ending"),
    [
        ("tasks", "rows.parquet", ".jsonl"),
        ("tasks", "rows.csv", ".jsonl"),
        ("verl", "rows.jsonl", ".parquet"),
        ("verl", "rows", ".parquet"),
        ("openrlhf", "rows.parquet", ".jsonl"),
        ("openrlhf", "rows", ".jsonl"),
        ("rl2", "rows.parquet", ".jsonl"),
        ("trl", "rows.parquet", ".jsonl"),
        ("trl", "rows", ".jsonl"),
    ],
)
def test_a_name_that_says_another_format_is_refused(format, name, ending, tmp_path, capsys):
    argv = ["export", "--to", format, "--env", EASY, "--num", "1", "--out", str(tmp_path / name)]
    assert main(argv) == 2
    assert f"end {'the name' if format == 'tasks' else 'it'} with {ending}" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_a_trainer_without_an_exporter_is_reported_in_one_line(tmp_path, capsys):
    argv = ["export", "--to", "oat", "--env", EASY, "--num", "1", "--out", str(tmp_path / "rows")]
    assert main(argv) == 2
    assert capsys.readouterr().err == (
        "gem-core: error: gem_oat has no exporter; `--to tasks` writes the same rows as JSON Lines\n"
    )
    assert not (tmp_path / "rows").exists()


def test_the_error_for_an_unknown_trainer_lists_the_known_ones(tmp_path, capsys):
    argv = ["export", "--to", "vrel", "--env", EASY, "--num", "1", "--out", str(tmp_path / "rows")]
    assert main(argv) == 2
    assert "unknown trainer 'vrel'" in (message := capsys.readouterr().err)
    assert "verl" in message


def test_a_trainers_exporter_is_given_the_rows_and_the_path(tmp_path, monkeypatch):
    written = {}
    exporter = types.ModuleType("gem_verl._rows")
    exporter.write = lambda rows, path: written.update(rows=list(rows), path=path)
    monkeypatch.setitem(sys.modules, "gem_verl._rows", exporter)
    argv = ["export", "--to", "verl", "--env", EASY, "--num", "2", "--out", "where"]
    assert main(argv) == 0
    assert written["path"] == "where"
    assert [row["index"] for row in written["rows"]] == [0, 1]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--env", "game:GuessTheNumber-v0(max_number=0)", "--num", "1"], "max_number"),
        (["--env", "game:GuessTheNumber-v0=0", "--num", "1"], "weight above 0"),
        (["--env", "game:GuesTheNumber-v0", "--num", "1"], "Did you mean"),
        (["--env", EASY, "--num", "0"], "at least 1"),
    ],
)
def test_mistakes_leave_no_file(argv, expected, tmp_path, capsys):
    out = tmp_path / "rows"
    assert main(["export", "--to", "tasks", *argv, "--out", str(out)]) == 2
    assert expected in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_path_is_reported_in_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    argv = ["export", "--to", "tasks", "--env", EASY, "--num", "1", "--out", str(tmp_path / "file" / "rows")]
    assert main(argv) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_disk_that_fills_up_is_reported_in_one_line_and_leaves_nothing(tmp_path):
    command = (
        f"ulimit -f 4; exec {sys.executable} -m gem_lab export --to tasks --env {EASY} --num 1000 --out rows"
    )
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gem-core: error: [Errno 27] File too large: '{tmp_path / 'rows'}'\n"
    assert list(tmp_path.iterdir()) == []


def test_one_side_of_a_game_has_rows_and_all_sides_have_none(tmp_path, capsys):
    argv = ["export", "--to", "tasks", "--num", "2", "--out", str(tmp_path / "rows.jsonl"), "--env"]
    assert main([*argv, 'multi:KuhnPoker-v0(opponent="oracle")']) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["env_kwargs"] for row in rows] == [{"opponent": "oracle"}] * 2
    assert main([*argv, 'multi:KuhnPoker-v0(opponent="self")']) == 2
    assert "has several agents, but this command plays one: name an opponent" in capsys.readouterr().err
