from __future__ import annotations

import json

import pytest

import gem_core
from gem_lab import main
from tests.cli.terminal import Terminal
from tests.support import ScriptedEnv

EASY = "game:GuessTheNumber-v0-easy"


def measure(capsys, *argv: str, code: int = 0) -> dict:
    assert main(["bench", *argv, "--seconds", "0.05", "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_one_environment(capsys):
    result = measure(capsys, EASY)
    assert (result["id"], result["num_envs"], result["backend"], result["errors"]) == (EASY, 1, "none", 0)
    assert result["steps"] >= result["episodes"] > 0
    assert result["steps_per_second"] == pytest.approx(result["steps"] / result["seconds"])


@pytest.mark.parametrize(("argv", "backend"), [((), "inline"), (("--backend", "thread"), "thread")])
def test_a_vector_env(argv, backend, capsys):
    result = measure(capsys, EASY, "--num-envs", "3", *argv)
    assert (result["num_envs"], result["backend"], result["errors"]) == (3, backend, 0)
    assert result["steps"] % 3 == 0


def test_text_output(capsys):
    assert main(["bench", EASY, "--seconds", "0.02"]) == 0
    assert "steps/s" in capsys.readouterr().out


def test_failing_steps_are_exit_1(capsys, monkeypatch):
    made = []

    class FailsLater(ScriptedEnv):
        """The first instance prepares the actions; the measured instances fail."""

        def __init__(self) -> None:
            super().__init__(fail_at=1 if made else None)
            made.append(self)

    monkeypatch.setattr("gem_core._registration._envs._values", {})
    gem_core.register("test:FailsLater-v0", FailsLater)
    result = measure(capsys, "test:FailsLater-v0", "--num-envs", "2", code=1)
    assert result["errors"] > 0


@pytest.mark.parametrize("hide_rich", [False, True])
def test_a_bar_on_a_terminal_goes_away_before_the_result(hide_rich):
    if not hide_rich:
        pytest.importorskip("rich", reason="needs the extra 'train'")
    with Terminal("bench", EASY, "--seconds", "0.3", hide_rich=hide_rich) as terminal:
        if not hide_rich:
            terminal.wait_for(f"stepping {EASY}")
        terminal.wait_for(f"{EASY} (one environment): ")
        terminal.wait_for("steps/s")
        assert terminal.exit_code() == 0
