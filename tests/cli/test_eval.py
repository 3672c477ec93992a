"""The output of `gem-core eval` while it runs; see `tests/eval/test_run.py` for its results."""

from __future__ import annotations

import io
import json

import pytest

from gem_lab import main
from gem_lab._cli import _console

WORDS = ["eval", "--model", "random", "--env", "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"]


def test_a_bar_for_each_environment_on_a_terminal(tmp_path, monkeypatch, capsys):
    rich = pytest.importorskip("rich.console", reason="needs the extra 'eval'")
    screen = io.StringIO()

    def console(stream=None):
        return None if stream is None else rich.Console(file=screen, force_terminal=True, width=160)

    monkeypatch.setattr(_console, "rich_console", console)
    assert main([*WORDS, "--episodes", "3", "--out", str(tmp_path)]) == 0
    shown = screen.getvalue()
    assert "game:Mastermind-v0-easy" in shown
    assert "3/3" in shown
    assert "solved 0." in shown
    assert main([*WORDS, "--episodes", "3", "--out", str(tmp_path)]) == 0  # nothing left to play: no bars


def test_plain_lines_elsewhere(tmp_path, capsys):
    assert main([*WORDS, "--episodes", "2", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "game:Mastermind-v0-easy: all episodes are finished" in said.err
    assert f"`gem-core report {tmp_path}`" in said.err
    assert main([*WORDS, "--episodes", "2", "--out", str(tmp_path / "quiet"), "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_failed_episodes_are_explained(tmp_path, capsys):
    pytest.importorskip("aiohttp", reason="needs the extra 'serve'")
    words = [
        "eval",
        "--model",
        "random",
        "--env",
        "openenv:http://127.0.0.1:1(retry_for=0)",
        "--episodes",
        "2",
    ]
    assert main([*words, "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "2 of 2 episodes failed; the first is openenv:http://127.0.0.1:1 with seed 0: " in said
    assert "http://127.0.0.1:1/schema does not answer (ConnectionRefusedError" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--extra-body", "[1]"], "is not a JSON object"),
        (["--extra-body", "{"], "is not JSON"),
        (["--episodes", "0"], "episodes=0: expected a whole number from 1 to"),
        (["--temperature", "-1"], "temperature=-1.0: expected a number of at least 0"),
        (
            ["--api-key-env", "NO_SUCH_VARIABLE"],
            "--api-key-env=NO_SUCH_VARIABLE: this environment variable is not set",
        ),
    ],
)
def test_mistakes(more, message, tmp_path, capsys):
    assert main([*WORDS, "--out", str(tmp_path), *more]) == 2
    assert message in capsys.readouterr().err


SUITES = {
    "windows": b"\xef\xbb\xbfgame:GuessTheNumber-v0-easy as guess\r\n\r\ngame:Mastermind-v0-easy\r\n",
    "utf-16": "game:GuessTheNumber-v0-easy as guess\r\ngame:Mastermind-v0-easy".encode("utf-16"),
    "comments": b"# two games\ngame:GuessTheNumber-v0-easy as guess # easy\n\ngame:Mastermind-v0-easy\t#\n",
}


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_is_read_wherever_it_was_written(suite, tmp_path, capsys):
    (tmp_path / "suite.txt").write_bytes(SUITES[suite])
    words = ["eval", "--model", "random", "--env", f"@{tmp_path}/suite.txt", "--episodes", "1", "--json"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert list(json.loads(capsys.readouterr().out)["envs"]) == ["guess", "game:Mastermind-v0-easy"]


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        (b"# nothing\n\n", "the file names no environment"),
        (b"", "the file names no environment"),
        ("game:Zwölf".encode("latin-1"), "save it as text in UTF-8"),
        (b"game:GuesTheNumber-v0", "Did you mean game:GuessTheNumber-v0"),
    ],
)
def test_mistakes_in_a_suite(suite, message, tmp_path, capsys):
    (tmp_path / "suite.txt").write_bytes(suite)
    assert main(["eval", "--model", "random", "--env", f"@{tmp_path}/suite.txt"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_an_environment_in_a_folder_with_spaces_is_evaluated_and_resumed(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "my files (1), x=y"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["new", "HotCold"]) == 0
    words = ["eval", "--model", "oracle", "--env", "hot_cold.py:HotCold", "--json", "--out", "run"]
    for episodes in ("1", "2"):
        assert main([*words, "--episodes", episodes]) == 0
    assert main(["report", "run"]) == 0
    assert main(["eval", "--rescore", "run", "--trust-run"]) == 0
    assert main(["view", "."]) == 0
    capsys.readouterr()
    monkeypatch.chdir("/")
    words = ["export", "--to", "tasks", "--num", "2", "--out", str(folder / "tasks.jsonl")]
    assert main([*words, "--env", f"{folder}/hot_cold.py:HotCold(max_number=9)=2"]) == 0
