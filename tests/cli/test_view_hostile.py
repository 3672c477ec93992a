"""`gem-core view FOLDER` and `report` with hostile files: each run is shown or listed with a reason."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from gem_core.errors import TraceError
from gem_core.rollout import read_traces
from gem_lab import main
from gem_lab.eval import EvalConfig, evaluate

EASY = "game:GuessTheNumber-v0-easy"
DEEP = "[" * 100_000
BRACES = "$$" + "{" * 700 + "x" + "}" * 700 + "$$"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "oracle"
    evaluate(EvalConfig("oracle", [EASY], episodes=2, out=str(folder)))
    return folder


def _changed(name: str, old: str, new: str):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def _written(name: str, content: str):
    return lambda folder: (folder / name).write_text(content)


def _unfinished(change):
    def both(folder):
        (folder / "summary.json").unlink()
        change(folder)

    return both


def _trace(content: str):
    def write(folder):
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "traces.jsonl").write_text(f'{{"schema_version":1,"env_id":"x",{content}}}\n')

    return write


def _training(config: str, evaluations: str = ""):
    def write(folder):
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "config.json").write_text(config)
        (folder / "metrics.jsonl").write_text("")
        (folder / "evaluations.jsonl").write_text(evaluations)

    return write


def _folder_in_place_of(name: str):
    def replace(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return replace


DAMAGES = {
    "deep config": _written("config.json", DEEP),
    "deep summary": _written("summary.json", DEEP),
    "summary of 900 levels": _changed("summary.json", '"mean": 1.0', '"mean": ' + "[" * 900 + "]" * 900),
    "deep line": _unfinished(_changed("episodes.jsonl", '"turns":[', '"turns":[' + DEEP)),
    "deep line of a finished run": _changed("episodes.jsonl", '"turns":[', '"turns":[' + DEEP),
    "huge number": _unfinished(_changed("episodes.jsonl", '"reward":1.0', '"reward":1' + "0" * 400)),
    "huge mean": _changed("summary.json", '"mean": 1.0', '"mean": 1' + "0" * 400),
    "text as a mean": _changed("summary.json", '"mean": 1.0', '"mean": "one"'),
    "list of a config": _written("config.json", "[1]"),
    "number as envs": _changed("config.json", f'"{EASY}"', "7"),
    "unreadable bytes": lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\xff"),
    "trace of 900 levels": _trace('"turns":[],"seed":' + "[" * 900 + "]" * 900),
    "trace of numbers": _trace('"turns":[1,2]'),
    "training of 900 levels": _training("[" * 900 + "]" * 900),
    "training with deep evaluations": _training('{"steps": 1}', DEEP + "\n"),
    "training with a huge step": _training('{"steps": 1}', '{"step":1' + "0" * 5000 + "}\n"),
    "folder as config": _folder_in_place_of("config.json"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_listed_with_the_reason_beside_the_others(name, run, tmp_path, capsys):
    root = tmp_path / "runs"
    shutil.copytree(run, root / "good")
    shutil.copytree(run, root / "bad")
    DAMAGES[name](root / "bad")
    assert main(["view", str(root), "--json"]) == 0
    listed = {entry["path"]: entry for entry in json.loads(capsys.readouterr().out)["runs"]}
    assert listed[str(root / "good")]["state"] == "finished"
    assert (root / "good" / "view.html").exists()
    bad = [entry for path, entry in listed.items() if path.startswith(str(root / "bad"))]
    assert name == "folder as config" or any(one["state"] == "damaged" and one["score"] for one in bad), bad
    assert "good" in (root / "index.html").read_text()


def test_the_index_survives_names_pipes_and_pages_that_cannot_be_written(run, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(run, root / "good")
    shutil.copytree(run, root / "blocked")
    (root / "blocked" / "view.html").mkdir()
    shutil.copytree(run, root / "surrogate")
    _changed("config.json", '"model": "oracle"', '"model": "\\ud800"')(root / "surrogate")
    shutil.copytree(run, root / "old")
    shutil.copytree(run, root / os.fsdecode(b"\xff"))
    os.mkfifo(root / "pipe.jsonl")
    (root / "zero.jsonl").symlink_to("/dev/zero")
    (root / "records").mkdir()
    os.mkfifo(root / "records" / "pipe.json")
    assert main(["view", str(root)]) == 0
    page = (root / "index.html").read_bytes()
    assert page.count(b'class="finished"') >= 4


def test_one_answer_does_not_break_a_page_a_report_or_an_index(run, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(run, root / "good")
    shutil.copytree(run, root / "brace")
    lines = [json.loads(line) for line in (root / "brace" / "episodes.jsonl").read_text().splitlines()]
    lines[0]["turns"][0]["action"] = BRACES
    (root / "brace" / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = str(root / "brace" / "episodes.jsonl")
    assert main(["view", trace, "--out", str(tmp_path / "page.html")]) == 0
    assert (
        main(["report", str(root / "good"), str(root / "brace"), "--out", str(tmp_path / "report.html")]) == 0
    )
    assert main(["view", str(root)]) == 0
    for page in (tmp_path / "page.html", tmp_path / "report.html", root / "brace" / "view.html"):
        assert "{" * 700 in page.read_text()


@pytest.mark.parametrize("content", [DEEP, "[" * 900 + "]" * 900, '{"a":1e999}', '{"a":' * 500, "9" * 5000])
def test_a_damaged_line_of_a_trace_is_a_trace_error(content, tmp_path):
    path = tmp_path / "traces.jsonl"
    path.write_text(content + "\n")
    with pytest.raises(TraceError, match="line 1"):
        list(read_traces(path))
