"""`gem-core data`: how a file is read, its first rows, and rows that cannot be graded."""

from __future__ import annotations

import json

import pytest

from gem_lab import main

LONG = "word " * 200
GOOD = [
    {
        "prompt": [{"role": "user", "content": f"{n} + {n} = ? {LONG}"}],
        "reward_model": {"ground_truth": n},
    }
    for n in range(5)
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_what_is_read_in_a_terminal_of_80_columns(tmp_path, capsys):
    assert main(["data", write(tmp_path / "rows.jsonl", GOOD)]) == 0
    shown = capsys.readouterr().out
    assert "format      verl (recognized by its columns)" in shown
    assert "answer      from reward_model.ground_truth" in shown
    assert [f"row {n}" in shown for n in range(4)] == [True, True, True, False]
    assert "more lines)" in shown
    assert max(map(len, shown.splitlines())) < 80


def test_the_usage_that_is_shown_works(tmp_path, capsys):
    pytest.importorskip("math_verify", reason="needs the extra 'math'")
    from gem_core.tasks import EnvChoice

    assert main(["data", write(tmp_path / "rows.jsonl", GOOD), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["format"], about["rows"], len(about["first"])) == ("verl", 5, 3)
    env = EnvChoice.parse(about["usage"]).make()
    env.reset(options={"index": 3})
    assert env.step(r"\boxed{3}")[1] == 1.0


def test_rows_that_cannot_be_graded(tmp_path, capsys):
    file = write(tmp_path / "rows.jsonl", [*GOOD, {**GOOD[0], "reward_model": {"ground_truth": None}}])
    assert main(["data", file]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "1 of 6 rows cannot be graded, such as row 5: column 'reward_model.ground_truth' has no answer"
        in shown
    )


def test_keys_instead_of_a_format(tmp_path, capsys):
    file = write(tmp_path / "rows.jsonl", [{"q": "Who?", "a": {"names": ["Ada", "Lovelace"]}}])
    assert main(["data", file, "--kind", "qa", "--question-key", "q", "--answer-key", "a.names"]) == 0
    shown = capsys.readouterr().out
    assert "Ada | Lovelace" in shown
    assert "format      named by keys" in shown
    assert main(["data", file]) == 2
    assert "name them with --question-key" in capsys.readouterr().err


def test_export_refuses_rows_that_cannot_be_graded(tmp_path, capsys):
    file = write(
        tmp_path / "rows.jsonl", [{"question": "p", "answer": "1"}, {"question": "q", "answer": None}]
    )
    env = f"eval:QaOpen(dataset_name={file!r}, eval_only=False)"
    assert main(["export", "--to", "tasks", "--env", env, "--out", str(tmp_path / "tasks.jsonl")]) == 2
    assert "row 1: column 'answer' has no answer" in capsys.readouterr().err
    assert not (tmp_path / "tasks.jsonl").exists()
