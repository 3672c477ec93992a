from __future__ import annotations

import json
import re
from statistics import fmean, stdev

import pytest

from gem_chat import MessagesContext
from gem_core.errors import ConfigError
from gem_core.rollout import ChatReply
from gem_lab import main
from gem_lab.eval import EvalConfig, PolicySetup, evaluate, paired_differences, read_atif, read_run
from gem_lab.eval._report import short_labels, summary_rows, write_report
from tests.eval.traces import EVIL

EASY, CODE = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"


class Says:
    def __init__(self, text):
        self.text = text

    async def reply(self, messages, *, max_tokens, request_id):
        return ChatReply(self.text, "stop", 12, 3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two evaluations: a player without a model, and a model with hostile texts."""
    folder = tmp_path_factory.mktemp("runs")
    evaluate(EvalConfig("oracle", [EASY, CODE], episodes=4, group_size=2, out=str(folder / "oracle")))
    evaluate(
        EvalConfig(EVIL, [EASY], episodes=3, system_prompt=EVIL, price_in=1.0, out=str(folder / "evil")),
        setup=PolicySetup(Says(EVIL), MessagesContext()),
    )
    return folder


def test_the_page_has_tables_plots_and_every_episode(runs, tmp_path):
    page = write_report([read_run(runs / "oracle"), read_run(runs / "evil")], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert page.episodes == 2 * 8 + 3
    assert text.count('<svg class="chart"') == 2
    assert "1.000 ± 0.000 [0.510, 1.000]" in text  # success of 4 tasks, 2 samples each
    assert "<td>1.000 ± 0.000</td>" in text  # equal returns have no interval
    assert text.count('<table id="differences">') == 1
    assert "Differences from oracle" in text
    assert "<td>2: 1.000</td>" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert EVIL not in text
    assert "<script>document" not in text


def test_two_folders_of_one_name(runs, tmp_path):
    import shutil

    shutil.copytree(runs / "oracle", tmp_path / "other" / "oracle")
    both = [read_run(runs / "oracle"), read_run(tmp_path / "other" / "oracle")]
    write_report(both, tmp_path / "page.html")
    assert str(tmp_path / "other" / "oracle") in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_report_computes_differences_once(flags, runs, tmp_path, monkeypatch):
    calls = []

    def counted(base, other):
        calls.append(other)
        return paired_differences(base, other)

    monkeypatch.setattr("gem_lab.eval._report.paired_differences", counted)
    folders = [str(runs / name) for name in ("oracle", "evil")]
    assert main(["report", *folders, "--out", str(tmp_path / "page.html"), *flags]) == 0
    assert len(calls) == 1


def test_differences_are_paired_by_task(runs, tmp_path):
    """The oracle against a random player: the same result as pairing the episodes by hand."""
    evaluate(EvalConfig("random", [EASY, CODE], episodes=6, out=str(tmp_path / "random")))
    oracle, random, evil = (
        read_run(folder).episodes for folder in (runs / "oracle", tmp_path / "random", runs / "evil")
    )
    differences = paired_differences(oracle, random)
    lost = [
        episode.total_reward - 1.0
        for episode in random
        if episode.metadata["env"] == EASY and episode.metadata["task"] < 4
    ]
    easy = differences["envs"][EASY]
    assert (easy["tasks"], easy["return"]["mean"]) == (4, pytest.approx(fmean(lost)))
    assert easy["return"]["se"] == pytest.approx(stdev(lost) / 2)
    assert differences["overall"]["tasks"] == 8
    assert differences["overall"]["return"]["low"] < differences["overall"]["return"]["mean"] < 0
    reverse = paired_differences(random, oracle)["envs"][EASY]["return"]
    assert reverse["mean"] == pytest.approx(-easy["return"]["mean"])
    assert paired_differences(oracle, oracle)["overall"]["success"]["low"] is None
    assert paired_differences(oracle, evil)["envs"].keys() == {EASY}


def test_a_run_is_listed_once(runs, tmp_path, capsys):
    twice = ["report", str(runs / "oracle"), str(runs / "evil" / ".." / "oracle")]
    assert main([*twice, "--out", str(tmp_path / "page.html")]) == 2
    assert "oracle is listed twice; list each run once" in capsys.readouterr().err


def test_a_run_that_is_unfinished_or_does_not_exist(runs, tmp_path):
    with pytest.raises(ConfigError, match="`gem-core eval` has not been run there"):
        read_run(tmp_path)
    (tmp_path / "config.json").write_text((runs / "oracle" / "config.json").read_text())
    with pytest.raises(ConfigError, match="has not finished; repeat its command"):
        read_run(tmp_path)
    with pytest.raises(ConfigError, match="at least one folder"):
        write_report([], tmp_path / "page.html")


def test_unrelated_files_are_reported_in_one_line(runs, tmp_path, capsys):
    good = {name: (runs / "oracle" / name).read_text() for name in ("config.json", "summary.json")}
    for changed, said in (
        (
            {"config.json": "{}"},
            "config.json is damaged or was not written by `gem-core eval`: it lacks model",
        ),
        ({"summary.json": "[]"}, "summary.json is damaged: expected an object"),
        ({"summary.json": "{}"}, "summary.json is damaged or was not written by `gem-core eval`: it lacks"),
        ({"summary.json": '{"envs": {"a": {}}, "overall": {}}'}, "summary.json is damaged (KeyError"),
        (
            {"summary.json": '{"env": [], "overall": 5}'},
            "summary.json is damaged or was not written by `gem-core eval`: it lacks",
        ),
    ):
        for name, text in {**good, **changed}.items():
            (tmp_path / name).write_text(text)
        assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
        shown = capsys.readouterr().err
        assert said in shown
        assert shown.count("\n") == 1


def test_the_command(runs, tmp_path, capsys):
    out = tmp_path / "page.html"
    words = ["report", str(runs / "oracle"), "--out", str(out), "--inspect", str(tmp_path / "logs"), "--json",
             "--atif", str(tmp_path / "atif")]  # fmt: skip
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["page"], said["episodes"], len(said["logs"]), said["trajectories"]) == (str(out), 16, 2, 16)
    episodes = read_run(runs / "oracle").episodes
    for index, episode in enumerate(episodes):
        assert read_atif(tmp_path / "atif" / "oracle" / str(index) / "trajectory.json") == episode
    for record, count in ((tmp_path / "atif" / "oracle" / "0" / "trajectory.json", 1), (said["logs"][0], 8)):
        assert main(["view", str(record), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["episodes"] == count
    assert main(["report", str(runs / "oracle"), str(runs / "evil"), "--out", str(out)]) == 0
    assert "Differences from oracle, paired by task" in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--out", str(out)]) == 2
    assert "config.json does not exist" in capsys.readouterr().err


def test_labels_lose_the_folder_of_a_file_unless_they_would_look_the_same():
    labels = [
        "/home/me/hot.py:Hot(size=50)",
        "C:\\envs\\cold.py:Cold",
        "game:Sudoku-v0",
        "/a/x.py:X",
        "/b/x.py:X",
    ]
    assert list(short_labels(labels).values()) == ["hot.py:Hot(size=50)", "cold.py:Cold", *labels[2:]]


def test_one_environment_is_not_averaged(runs):
    assert len(summary_rows(read_run(runs / "evil").summary)) == 1
    assert len(summary_rows(read_run(runs / "oracle").summary)) == 3


def test_the_legend_names_a_model_once(runs, tmp_path):
    write_report([read_run(runs / "oracle")], tmp_path / "page.html")
    (legend,) = re.findall('<p id="legend">(.*?)</p>', (tmp_path / "page.html").read_text())
    assert legend.count("oracle") == 1
