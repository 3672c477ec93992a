from __future__ import annotations

import io
import os
import signal
import subprocess
import sys

import pytest

import gem_core
from gem_lab import main
from tests.cli.terminal import Terminal
from tests.support import PIXEL, ImageEnv, ScriptedEnv

GAME = "game:GuessTheNumber-v0-easy"


def play(monkeypatch, capsys, typed: str, *argv: str) -> str:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["play", *(argv or (GAME, "--seed", "3"))]) == 0
    return capsys.readouterr().out


def hidden_number(seed: int) -> int:
    env = gem_core.make(GAME)
    env.reset(seed)
    return env.number


def test_piped_input_plays_an_episode(monkeypatch, capsys):
    number = hidden_number(3)
    wrong = 1 if number != 1 else 2
    shown = play(monkeypatch, capsys, f"{wrong}\n{number}\n")
    assert "Find the hidden number from 1 to 10" in shown
    assert "-- turn 1: reward +0, return 0\n" in shown
    assert f"than {wrong}" in shown
    assert shown.endswith("-- solved after 2 turns, return 1\n")


def test_a_bare_answer_is_boxed_and_a_box_is_left_alone(monkeypatch, capsys):
    number = hidden_number(3)
    for typed in (str(number), rf"I say \boxed{{{number}}}."):
        assert "solved after 1 turn, return 1" in play(monkeypatch, capsys, typed + "\n")


def test_an_image_is_written_to_a_file(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("gem_core._registration._envs._values", {})
    gem_core.register("test:Image-v0", ImageEnv)
    shown = play(monkeypatch, capsys, "", "test:Image-v0")
    (file,) = tmp_path.iterdir()
    assert f"image: {file}\n" in shown
    assert "[image]\nseed" in shown
    assert file.suffix == ".png"
    assert file.read_bytes() == PIXEL


def test_a_bare_answer_stays_bare_where_no_box_is_wanted(monkeypatch, capsys):
    played: list[ScriptedEnv] = []

    class Plain(ScriptedEnv):
        def __init__(self) -> None:
            super().__init__()
            played.append(self)

        def sample_random_action(self) -> str:
            return "anything"

    monkeypatch.setattr("gem_core._registration._envs._values", {})
    gem_core.register("test:Plain-v0", Plain)
    shown = play(monkeypatch, capsys, "one\ntwo\nthree\n", "test:Plain-v0")
    assert played[0].actions == ["one", "two", "three"]
    assert played[0].closed == 1
    assert "-- turn 2: reward +0.5, return 0.5\n" in shown


def test_a_bare_answer_is_put_into_a_block_where_one_is_wanted(monkeypatch, capsys):
    played: list[ScriptedEnv] = []

    class Shell(ScriptedEnv):
        def __init__(self) -> None:
            super().__init__([0.0] * 9)
            played.append(self)

        def sample_random_action(self) -> str:
            return "I leave.\n```bash\nsubmit\n```"

    monkeypatch.setattr("gem_core._registration._envs._values", {})
    gem_core.register("test:Shell-v0", Shell)
    typed = "ls -l\n```bash\nif true; then\n  ls\nfi\n```\n```bash ls```\n:random\n```bash\nls\n"
    shown = play(monkeypatch, capsys, typed, "test:Shell-v0")
    assert played[0].actions == [
        "```bash\nls -l\n```",
        "```bash\nif true; then\n  ls\nfi\n```",
        "```bash ls```",
        "I leave.\n```bash\nsubmit\n```",
        "```bash\nls",  # the input ended
    ]
    assert "left after 5 turns" in shown


def test_programs_can_be_typed(monkeypatch, capsys):
    typed = "print(3)\n```python\nfor number in range(2):\n    print(number)\n```\n"
    shown = play(monkeypatch, capsys, typed, "code:SmallTasks-v0-retry", "--seed", "3")
    assert "-- turn 2: " in shown
    assert "it contains no answer" not in shown


def test_an_environment_without_random_moves_can_be_played(monkeypatch, capsys):
    class Bare(ScriptedEnv):
        def sample_random_action(self) -> str:
            raise NotImplementedError("Bare does not define sample_random_action()")

    monkeypatch.setattr("gem_core._registration._envs._values", {})
    gem_core.register("test:Bare-v0", Bare)
    shown = play(monkeypatch, capsys, ":random\n:hint\none\n", "test:Bare-v0")
    assert "has no random player" in shown
    assert "has no oracle" in shown
    assert "left after 1 turn" in shown
    assert main(["bench", "test:Bare-v0"]) == 2
    assert "the benchmark plays random legal actions" in capsys.readouterr().err


def test_hint_shows_and_random_plays(monkeypatch, capsys):
    shown = play(monkeypatch, capsys, ":hint\n:random\n:quit\n")
    assert "\\boxed{5}\n" in shown
    assert shown.count("-- turn ") == 1
    assert "-- left after 1 turn, return" in shown


def test_following_the_hints_wins(monkeypatch, capsys):
    shown = play(monkeypatch, capsys, "5\n:hint\n" + ":quit\n")
    assert shown.count("\\boxed{") >= 1
    assert "left after 1 turn" in shown


def test_invalid_moves_are_explained(monkeypatch, capsys):
    shown = play(monkeypatch, capsys, "99\nnothing\n")
    assert "invalid: it is against the rules; it uses up the turn" in shown
    assert "invalid: it contains no answer" in shown
    assert "A model's episode would end here with the reward -0.1; you can answer again" in shown
    assert shown.endswith("-- left after 1 turn, return 0\n")


def test_a_mistyped_answer_does_not_end_the_game(monkeypatch, capsys):
    clean = play(monkeypatch, capsys, "5\n:hint\n:quit\n")
    mistyped = play(monkeypatch, capsys, "5\nfvie\n:hint\n:quit\n")
    hint = clean[clean.index("-- turn 1") :]
    assert "you can answer again" in mistyped
    assert mistyped.endswith(hint[hint.index("\\boxed{") :])  # the game continues from the same state


def test_unknown_commands_and_empty_lines_show_the_help(monkeypatch, capsys):
    shown = play(monkeypatch, capsys, "\n:state\n:help\n")
    assert "Unknown command :state" in shown
    assert shown.count(":random  play a random legal move") == 3
    assert "-- turn" not in shown


def test_input_that_is_not_text_is_a_bad_answer_and_not_a_failure():
    done = subprocess.run(
        [sys.executable, "-m", "gem_lab", "play", GAME, "--seed", "3"],
        input=b"\xff\xfe\n", capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"it contains no answer" in done.stdout


def test_the_end_of_the_input_ends_the_game(monkeypatch, capsys):
    assert "-- left after 0 turns, return 0" in play(monkeypatch, capsys, "")


def test_without_a_seed_the_seed_is_named(monkeypatch, capsys):
    shown = play(monkeypatch, capsys, ":quit\n", GAME)
    seed = shown.splitlines()[0].split("--seed ")[1].split(";")[0]
    again = play(monkeypatch, capsys, ":quit\n", GAME, "--seed", seed)
    assert again == shown


def test_wrappers_and_kwargs_reach_the_game(monkeypatch, capsys):
    shown = play(
        monkeypatch,
        capsys,
        "1\n1\n",
        GAME,
        "--kwargs",
        "max_number=1000",
        "--wrappers",
        "time_limit(max_turns=1)",
    )
    assert "from 1 to 1000" in shown
    assert "out of turns after 1 turn" in shown


def test_arguments_may_follow_the_id(monkeypatch, capsys):
    form = "game:GuessTheNumber-v0-easy(max_number=30, min_number=2)"
    assert "from 2 to 30" in play(monkeypatch, capsys, "", form)
    assert "from 2 to 40" in play(monkeypatch, capsys, "", form, "--kwargs", "max_number=40")


@pytest.mark.parametrize("hide_rich", [False, True])
def test_a_person_at_a_terminal(hide_rich):
    number = hidden_number(3)
    with Terminal("play", GAME, "--seed", "3", hide_rich=hide_rich) as terminal:
        terminal.wait_for("Turns left: 4.")
        terminal.wait_for("> ")
        terminal.type("99\n")
        terminal.wait_for("against the rules")
        terminal.wait_for("> ")
        terminal.type(f"{number}\n")
        terminal.wait_for("solved after 2 turns, return 1")
        assert terminal.exit_code() == 0


def test_ctrl_d_leaves():
    with Terminal("play", GAME, "--seed", "3") as terminal:
        terminal.wait_for("> ")
        terminal.type("\x04")
        terminal.wait_for("left after 0 turns")
        assert terminal.exit_code() == 0


def test_ctrl_c_interrupts():
    with Terminal("play", GAME, "--seed", "3") as terminal:
        terminal.wait_for("> ")
        for _ in range(30):
            terminal.process.send_signal(signal.SIGINT)
            # a signal just before the line editor waits for a key only takes effect with the next one
            if terminal.shows("interrupted", 1.0):
                break
        assert terminal.exit_code() == 130
