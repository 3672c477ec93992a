"""`gem-core view DIR`: the index of the runs in a folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from gem_core.rollout import TraceWriter
from gem_lab import main
from gem_lab._cli._runs import find_runs, write_index
from gem_lab._run_folders import claimed
from gem_lab.consistency._learning import LearningRun
from gem_lab.eval import EvalConfig, evaluate
from tests.eval.traces import EVIL, episode, several, turn

EASY = "game:GuessTheNumber-v0-easy"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    evaluate(EvalConfig("oracle", [EASY], episodes=4, out=str(folder / "oracle")))
    return folder


@pytest.fixture
def runs(finished, tmp_path):
    """One folder with a run of each kind."""
    root = tmp_path / "runs"
    shutil.copytree(finished, root)
    shutil.copytree(root / "oracle", root / "half")
    (root / "half" / "summary.json").unlink()
    lines = (root / "half" / "episodes.jsonl").read_text().splitlines(keepends=True)
    (root / "half" / "episodes.jsonl").write_text("".join(lines[:3]))
    training = root / "deep" / "training"
    (training / "checkpoints" / "step-1").mkdir(parents=True)
    (training / "checkpoints" / "step-1" / "config.json").write_text("{}")
    (training / "config.json").write_text(json.dumps({"model": "tiny", "env": [EASY], "steps": 4}))
    (training / "metrics.jsonl").write_text("{}\n{}\n")
    (training / "evaluation.json").write_text(json.dumps({"before": {EASY: {}}}))
    results = [
        {
            "step": step,
            "env": env,
            "success": [True] * solved + [False] * (9 - solved),
            "error": [False] * 8 + [True],
        }
        for step, env, solved in [(0, EASY, 2), (0, "b", 4), (1, EASY, 4), (1, "b", 8)]
    ]
    complete = "".join(json.dumps(line) + "\n" for line in results)
    (training / "evaluations.jsonl").write_text(complete + '{"step": 2, "env"')  # just being written
    for path in (training / "traces.jsonl", root / "trainer" / "eval.jsonl"):
        with TraceWriter(path) as writer:
            for one in several():
                writer.write(one)
    line = asdict(
        LearningRun(
            "game", "reference", "1", "rebn", 0, 0.1, 0.5, "ab", {"env": EASY}, "run", "c0ffee", [0.1]
        )
    )
    (root / "learning.jsonl").write_text(json.dumps(line) + "\n")
    (root / "damaged").mkdir()
    (root / "damaged" / "config.json").write_text("{")
    (root / "damaged" / "episodes.jsonl").write_text("")
    (root / "rows.jsonl").write_text('{"env": "not a trace"}\n')
    return root


def test_every_kind_of_run_is_listed_with_its_state_and_a_page(runs, capsys):
    assert main(["view", str(runs), "--json"]) == 0
    listed = {
        run["path"].removeprefix(f"{runs}/"): run for run in json.loads(capsys.readouterr().out)["runs"]
    }
    assert {path: (run["kind"], run["state"]) for path, run in listed.items()} == {
        "oracle": ("evaluation", "finished"),
        "half": ("evaluation", "stopped"),
        "deep/training": ("training", "stopped"),
        "trainer/eval.jsonl": ("trace", "finished"),
        "learning.jsonl": ("consistency", "finished"),
        "damaged": ("evaluation", "damaged"),
    }
    assert listed["oracle"]["score"] == "1.000 ± 0.000 [0.510, 1.000]"
    assert listed["half"]["score"].endswith("after 3 of 4 episodes")
    score = listed["deep/training"]["score"]
    assert re.fullmatch(r"0\.375 ± \S+ \[.*\] → 0\.750 ± \S+ \[.*\] after 2 of 4 steps", score)
    entries = {entry.path: entry for entry in find_runs(runs)}
    assert entries[runs / "oracle"].envs == entries[runs / "deep" / "training"].envs == (EASY,)
    assert "config.json is damaged" in listed["damaged"]["score"]
    page = (runs / "index.html").read_text()
    links = re.findall(r'href="([^"]+)"', page)
    assert sorted(links) == sorted(
        [
            "oracle/view.html",
            "half/view.html",
            "deep/training/view.html",
            "trainer/eval.html",
            "learning.html",
        ]
    )
    assert all((runs / link).stat().st_size > 1000 for link in links)
    assert "Differences" not in (runs / "oracle" / "view.html").read_text()  # a report of one run
    assert 'http-equiv="refresh"' not in page


def test_hostile_names_are_text(tmp_path):
    with TraceWriter(tmp_path / "<img src=x onerror=alert(1)>.jsonl") as writer:
        writer.write(episode(turn(), env_id=EVIL, metadata={"model": EVIL}))
    write_index(tmp_path, tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    assert "<img" not in page
    assert "<script" not in page


def test_pages_follow_a_run_and_others_are_left_alone(runs, monkeypatch, capsys):
    """The run continues after the first round and ends after the second; the third round is interrupted."""
    half = runs / "half"
    rounds = []

    def sleep(seconds):
        entries = {entry.path: entry for entry in find_runs(runs)}
        shown = (half / "view.html").read_text()
        rounds.append((seconds, entries[half].state, shown.count('"env":')))
        if len(rounds) == 1:
            oracle = (runs / "oracle" / "episodes.jsonl").read_text().splitlines(keepends=True)
            with (half / "episodes.jsonl").open("a") as file:
                file.write(oracle[-1])
        elif len(rounds) == 2:
            lock.__exit__(None, None, None)
            shutil.copy(runs / "oracle" / "summary.json", half)
        else:
            raise KeyboardInterrupt

    lock = claimed(half, "evaluation")
    lock.__enter__()
    write_index(runs, runs / "index.html")
    untouched = (runs / "oracle" / "view.html").stat().st_ino
    monkeypatch.setattr("gem_lab._cli.view.time", SimpleNamespace(sleep=sleep))
    assert main(["view", str(runs), "--watch", "2"]) == 130
    assert [(seconds, state) for seconds, state, _ in rounds] == [
        (2.0, "running"), (2.0, "running"), (2.0, "finished"),
    ]  # fmt: skip
    assert rounds[0][2] < rounds[1][2]
    assert 'http-equiv="refresh" content="2"' in (runs / "index.html").read_text()
    assert (runs / "oracle" / "view.html").stat().st_ino == untouched
    assert "Success" in (half / "view.html").read_text()  # the report of a finished run


def test_only_runs_that_changed_are_read_again(runs, monkeypatch):
    first = find_runs(runs)
    monkeypatch.setattr("gem_core.rollout.read_traces", None)  # any further reading of a trace fails
    assert find_runs(runs) == first
    os.utime(runs / "trainer" / "eval.jsonl", ns=(1, 1))
    again = {entry.path: entry for entry in find_runs(runs)}
    assert again[runs / "trainer" / "eval.jsonl"].state == "damaged"


def test_mistakes_are_reported_in_one_line(runs, tmp_path, capsys):
    (runs / "index.html").write_text("<p>my own page")
    trace = runs / "trainer" / "eval.jsonl"
    for words, message in [
        ([str(runs)], "is not a page of gem-core"),
        ([str(runs), "--tokenizer", "x"], "--tokenizer is for a single trace"),
        ([str(trace), "--watch"], "--watch requires a folder of runs"),
    ]:
        assert main(["view", *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert (runs / "index.html").read_text() == "<p>my own page"
