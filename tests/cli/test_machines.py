"""Commands whose standard streams are closed, whose folder is gone, or whose paths have odd bytes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gem_lab import main
from gem_lab._cli._console import note

GAME = "game:GuessTheNumber-v0-easy"
EVAL = ["eval", "--model", "random", "--env", GAME, "--episodes", "2", "--out"]
CLOSED = {"in": "<&-", "out": ">&-", "err": "2>&-", "all": "<&- >&- 2>&-"}
ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ENV = """
from gem_envs._games.guess_the_number import GuessTheNumber


class Mine(GuessTheNumber):
    pass
"""


def shell(code: str, *words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command line in which ``"$@"`` stands for gem-core with `words`."""
    command = ["bash", "-c", code, "_", sys.executable, "-m", "gem_lab", *words]
    return subprocess.run(command, capture_output=True, timeout=100, **options)  # type: ignore[call-overload]


@pytest.mark.once
@pytest.mark.parametrize("closed", CLOSED)
def test_closed_streams_change_no_result(closed: str, tmp_path: Path) -> None:
    done = shell(f'"$@" {CLOSED[closed]}', *EVAL, str(tmp_path / "run"))
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["overall"]["episodes"] == 2
    lines = (tmp_path / "run" / "episodes.jsonl").read_bytes().splitlines()
    assert len([json.loads(line) for line in lines]) == 2  # nothing else was printed into the file


@pytest.mark.once
def test_closed_streams_of_commands_that_read_and_print() -> None:
    for code, words, status in (
        ('"$@" <&-', ["play", GAME], 0),
        ('"$@" >&-', ["--version"], 0),
        ('"$@" <&- >&- 2>&-', ["envs", "game:*"], 0),
        ('"$@" 2>&-', ["bogus"], 2),
        ('"$@" 2</dev/null', ["check"], 2),  # an error that cannot be printed
    ):
        done = shell(code, *words)
        assert (done.returncode, b"Traceback" in done.stderr) == (status, False), (words, done.stderr)


def test_a_note_that_cannot_be_printed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as unwritable:
        monkeypatch.setattr(sys, "stderr", unwritable)
        note("text")


def test_a_limit_of_threads_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gem_lab._cli.envs.run", lambda args: threading.Thread(target=print).start())
    before = threading.stack_size(2**46)  # more than there is
    try:
        assert main(["envs"]) == 2
    finally:
        threading.stack_size(before)
    assert "(this user may start no more processes or threads; see `ulimit -u`)" in capsys.readouterr().err

    def fails(args: object) -> int:
        raise RuntimeError("can't start new thread")  # by a bug

    monkeypatch.setattr("gem_lab._cli.envs.run", fails)
    with pytest.raises(RuntimeError):
        main(["envs"])


def test_a_deleted_working_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main([*EVAL, "run"]) == 2
    assert "(the working directory no longer exists; change to another one)" in capsys.readouterr().err
    assert main(["envs", "game:*"]) == 0


@pytest.fixture
def odd(tmp_path: Path) -> str:
    """Return a folder whose name is not UTF-8, with an environment."""
    folder = os.path.join(tmp_path, os.fsdecode(b"caf\xe9"))
    os.mkdir(folder)
    with open(os.path.join(folder, "own.py"), "w") as file:
        file.write(ENV)
    return folder


def test_paths_that_are_not_utf_8(odd: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, env = f"{odd}/run", f"{odd}/own.py:Mine"
    for words in (
        [*EVAL, run],
        ["view", run],
        ["view", odd],
        ["report", run, "--out", f"{odd}/report.html"],
        ["check", env, "--seeds", "1", "--rules", "step_results", "specs_travel", "processes_change_nothing"],
        ["eval", "--model", "random", "--env", env, "--episodes", "1", "--out", f"{odd}/own"],
        ["eval", "--rescore", run, "--out", f"{odd}/again"],
    ):
        assert main(words) == 0, capsys.readouterr().err
    assert os.path.exists(f"{run}/view.html")


@pytest.mark.once
def test_paths_in_a_locale_without_their_letters(odd: str) -> None:
    for words in (
        [*EVAL, f"{odd}/é"],
        ["view", f"{odd}/é"],
        ["check", f"{odd}/own.py:Mine", "--rules", "step_results"],
    ):
        done = shell('"$@" </dev/null', *words, env={**os.environ, **ASCII})
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


BAD = {
    "empty": "", "truncated": None, "a list": "[]", "an object": "{}", "null": "null", "text": '"x"',
    "not JSON": "{", "bytes": "\udcff\udcfe", "deep": "[" * 5000,
    "other types": '{"model": 1, "envs": [2], "gem_core": [], "episodes": "3", "samples": {}, "overall": []}',
    "a newer version": '{"schema_version": 2, "envs": {}, "overall": {}}',
    "an environment that does not exist": (
        '{"model": "m", "envs": ["no:Such-v0"], "gem_core": "1", "episodes": 1, "samples": 1}'
    ),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ["config.json", "episodes.jsonl", "summary.json"])
def test_damaged_files_of_an_evaluation_are_named(
    name: str, bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main([*EVAL, str(run)]) == 0
    text = (run / name).read_text()
    damaged = text[:-20] if BAD[bad] is None else BAD[bad] + "\n" * (name == "episodes.jsonl")
    for words in (
        ["report", str(run), "--out", str(tmp_path / "report.html")],
        ["view", str(run), "--out", str(tmp_path / "view.html")],
        ["eval", "--rescore", str(run), "--out", str(tmp_path / "again")],
        [*EVAL, str(run)],
    ):
        (run / name).write_bytes(damaged.encode(errors="surrogateescape"))
        capsys.readouterr()
        status = main(words)
        error = capsys.readouterr().err
        assert status in (0, 2)
        if status:
            (line,) = [one for one in error.splitlines() if one.startswith("gem-core: error: ")]
            assert re.search(rf"{run}|no:Such-v0", line), line
