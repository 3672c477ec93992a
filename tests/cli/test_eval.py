"""The output of `gem-core eval` while it runs; see `tests/eval/test_run.py` for its results."""

from __future__ import annotations

import io

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
