"""Folders of strangers: nothing outside of them is written, and no file stops the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gem_core.rollout import Episode, TraceWriter, Turn
from gem_lab import main
from gem_lab._pages.document import PAGE_MARK

MINE = "mine, do not touch\n"


def episode(action):
    turn = Turn([], [], None, 0.0, observation="o", action=action, finish_reason="stop")
    return Episode("e", 0, [turn], terminated=True, truncated=False, stop_reason="terminated")


def trace(path, action="hello"):
    with TraceWriter(path) as traces:
        traces.write(episode(action))
    return path


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "keys").write_text(MINE)
    trace(tmp_path / "dl" / "good.jsonl")
    return tmp_path / "dl"


def index(folder):
    assert main(["view", str(folder)]) == 0
    text = (folder / "index.html").read_text()
    assert "good" in text
    assert (folder / "good.html").exists()
    return text


def link(path, target):
    os.symlink(target, path)
    return path


def test_no_page_is_written_through_a_link(folder):
    keys = folder.parent / "home" / "keys"
    trace(folder / "a.jsonl")
    link(folder / "a.html", "../home/keys")
    trace(folder / "b.jsonl")
    link(folder / "b.html", keys)
    trace(folder / "c.jsonl")
    link(folder / "c.html", "../home/new")
    trace(folder / "d.jsonl")
    link(folder / "d2.html", "../home/keys")
    link(folder / "d.html", "d2.html")
    trace(folder / "e.jsonl")
    (folder / "e.html").mkdir()
    page = folder.parent / "home" / "page.html"
    page.write_text(f"<html><head>{PAGE_MARK}</head>mine</html>")
    trace(folder / "f.jsonl")
    link(folder / "f.html", "../home/page.html")
    before = page.read_text()
    text = index(folder)
    assert text.count("no page:") == 6
    for name in "abcdef":
        assert main(["view", str(folder / f"{name}.jsonl")]) == 2
    assert main(["view", str(folder), "--out", str(folder / "a.html")]) == 2
    assert (keys.read_text(), page.read_text()) == (MINE, before)
    assert not (folder.parent / "home" / "new").exists()
    assert all((folder / f"{name}.html").is_symlink() for name in "abcdf")


def test_the_index_and_the_report_are_not_written_through_a_link(folder, monkeypatch, capsys):
    link(folder / "index.html", "../home/keys")
    assert main(["view", str(folder)]) == 2
    monkeypatch.chdir(folder)
    link(folder / "report.html", "../home/keys")
    assert main(["report", "good"]) == 2
    assert capsys.readouterr().err.count("is a link") == 2
    assert (folder.parent / "home" / "keys").read_text() == MINE


def test_a_page_of_the_user_stays(folder, monkeypatch):
    for name in ("notes.html", "report.html"):
        (folder / name).write_text("<h1>my notes</h1>")
    trace(folder / "notes.jsonl")
    assert "notes.html is not a page of gem-core" in index(folder)
    assert main(["view", str(folder / "notes.jsonl")]) == 2
    monkeypatch.chdir(folder)
    assert main(["report", "good"]) == 2
    assert {(folder / name).read_text() for name in ("notes.html", "report.html")} == {"<h1>my notes</h1>"}
    assert main(["view", str(folder / "notes.jsonl"), "--out", str(folder / "notes.html")]) == 0
    assert main(["view", str(folder / "notes.jsonl")]) == 0  # it is a page of gem-core now


def test_a_page_is_replaced_and_an_empty_file_filled(folder):
    (folder / "good.html").touch()
    assert main(["view", str(folder / "good.jsonl")]) == 0
    first = (folder / "good.html").stat()
    assert main(["view", str(folder / "good.jsonl")]) == 0
    assert (folder / "good.html").stat().st_ino != first.st_ino
    assert PAGE_MARK in (folder / "good.html").read_text()[:1000]


def test_a_page_goes_to_a_stream(folder):
    command = [sys.executable, "-m", "gem_lab", "view", str(folder / "good.jsonl"), "--out", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("<!doctype html>")


def test_names_have_no_control_characters(folder, capsys):
    name = "x\nssh-ed25519 AAAA\x1b]0;t\x07\u202e"
    trace(folder / f"{name}.jsonl")
    index(folder)
    page = (folder / f"{name}.html").read_text()
    assert "ssh-ed25519 AAAA" in page
    for text in (page, (folder / "index.html").read_text(), capsys.readouterr().err):
        assert "\nssh-ed25519" not in text
        assert not set(text) & set("\x1b\x07\u202e")


@pytest.mark.parametrize(
    "line",
    [
        '{"schema_version":1,"env_id":"x","turns":' + "[" * 5000 + "]" * 5000 + "}",
        '{"schema_version":1,"env_id":"x","turns":[1]}',
        '{"schema_version":1,"env_id":"x","turns":' + "9" * 400 + "}",
        '{"schema_version":1,"env_id":"x","turns":[{"info":{"reply":"text"}}]}',
        '{"schema_version":1,"env_id":"x","seed":{"a":[]},"turns":{}}',
        '{"schema_version":1,"env_id":["x"],"turns":[],"metadata":[]}',
        '{"schema_version":1,"env_id":"x"',
    ],
    ids=range(7),
)
def test_a_damaged_trace_does_not_stop_the_index(folder, line):
    (folder / "bad.jsonl").write_text(line + "\n")
    assert "damaged" in index(folder)


def test_odd_files_do_not_stop_the_index(folder):
    os.mkfifo(folder / "pipe.jsonl")
    os.mkfifo(folder / ".lock")
    link(folder / "loop.jsonl", "loop.jsonl")
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text("[" * 9999)
    (folder / "run" / "episodes.jsonl").write_text("{}\n")
    os.mkfifo(folder / "run" / ".lock")
    trace(folder / "future.jsonl")
    os.utime(folder / "future.jsonl", (2**40, 2**40))
    index(folder)


ANSWERS = {
    "braces": "$$" + "{" * 700 + "x" + "}" * 700 + "$$",
    "powers": "$" + "x^{" * 400 + "}" * 400 + "$",
    "roots": "$" + r"\sqrt{" * 280 + "}" * 280 + "$",
    "fractions": "$" + r"\frac" * 300 + "$",
    "environments": "$" + r"\begin{matrix}" * 60 + r"\end{matrix}" * 60 + "$",
    "quotes": ">" * 19_000 + "x",
    "lists": "\n".join("  " * depth + "- a" for depth in range(130)),
    "table": "|" + "a|" * 2000 + "\n|" + "-|" * 2000 + "\n" + "|\n" * 4000,
    "dollars": "$" * 1_000_000,
    "brackets": "[" * 19_000 + "**a",
    "lines": ("\n" + " " * 50) * 390 + "$x$",
    "long": "**a** " * 33_000,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_stops_a_page(tmp_path: Path, name):
    assert main(["view", str(trace(tmp_path / "a.jsonl", ANSWERS[name]))]) == 0
    assert (tmp_path / "a.html").stat().st_size > 1000


def test_a_damaged_run_does_not_stop_a_report(tmp_path, capsys):
    words = ["eval", "--model", "random", "--env", "game:GuessTheNumber-v0-easy", "--episodes", "1"]
    assert main([*words, "--out", str(tmp_path / "good")]) == 0
    bad = []
    for index, text in enumerate(("[" * 9999, "{}", "[]", '{"envs": 3, "overall": {}}', "\udcff")):
        bad.append(tmp_path / f"bad{index}")
        bad[-1].mkdir()
        for name in ("config.json", "episodes.jsonl"):
            (bad[-1] / name).write_bytes((tmp_path / "good" / name).read_bytes())
        (bad[-1] / "summary.json").write_bytes(text.encode(errors="surrogateescape"))
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "good"), *map(str, bad), "--out", str(page)]) == 1
    assert capsys.readouterr().err.count("left out:") == len(bad)
    assert "good" in page.read_text()
    assert main(["report", *map(str, bad), "--out", str(page)]) == 2
