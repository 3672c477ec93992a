"""The environment: turns, limits, states, grading, and attempts to break it."""

from __future__ import annotations

import json

import pytest

import gem_core
from gem_core.errors import ConfigError, SandboxError
from gem_envs._terminal.env import shell_block
from gem_envs.sandbox import self_check
from gem_lab import check_env

pytestmark = pytest.mark.skipif(
    not self_check()["namespace"].available, reason=self_check()["namespace"].reason
)

FENCE = "```"


def block(command: str) -> str:
    return f"Next.\n{FENCE}bash\n{command}\n{FENCE}"


@pytest.fixture
def env():
    with gem_core.make("terminal:Tasks-v0", seconds=60) as made:
        made.reset(seed=0)
        yield made


def test_check_env():
    rules = (
        "signatures reset_results step_results results_are_new random_actions_are_legal episodes_end "
        "best_return twins_are_equal states_survive_json forks_are_equal_and_independent "
        "resets_start_from_a_state junk_earns_nothing unknown_options unknown_arguments reset_is_needed "
        "closing_twice_is_fine"
    )
    check_env("terminal:Tasks-v0", rules=rules.split(), seeds=(0,))


@pytest.mark.parametrize("group", ["Files", "Logs", "Records", "Programs", "Repair", "Search"])
def test_the_oracle_solves_each_group(group):
    with gem_core.make(f"terminal:{group}-v0", seconds=60) as env:
        for index in (0, env.unwrapped.num_items - 1):
            env.reset(options={"index": index})
            _, reward, ended, *_ = env.step(env.oracle_action())
            assert (reward, ended) == (0.0, False)
            _, reward, terminated, _, info = env.step(env.oracle_action())
            assert (reward, terminated, info["success"], info["metrics"]["progress"]) == (
                1.0,
                True,
                True,
                1.0,
            )


def test_variables_folder_and_jobs_persist(env):
    env.step(block("x=5; f() { echo f$x; }; mkdir sub; cd sub; sleep 600 &"))
    assert env.step(block("f; pwd; jobs | wc -l"))[0] == "f5\n/app/sub\n1"


def test_output_is_cut_in_the_middle():
    with gem_core.make("terminal:Tasks-v0", max_output=200, seconds=60) as env:
        env.reset(seed=0)
        text = env.step(block("echo first; seq 100000; echo last"))[0]
    assert text.startswith("first\n1\n2\n")
    assert text.endswith("100000\nlast")
    assert "bytes left out" in text
    assert len(text) < 300


@pytest.mark.parametrize("command", ["sleep 600", "while :; do :; done", "cat /dev/zero", "yes"])
def test_a_slow_command_is_interrupted(command):
    with gem_core.make("terminal:Tasks-v0", seconds=2, max_output=500) as env:
        env.reset(seed=0)
        env.step(block("x=kept"))
        text, reward, terminated, truncated, _ = env.step(block(command))
        assert "took more than 2 seconds and was interrupted" in text
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert "kept" in env.step(block("echo $x"))[0]


def test_a_command_that_ignores_the_interrupt_is_killed_and_the_files_stay():
    with gem_core.make("terminal:Tasks-v0", seconds=2) as env:
        env.reset(seed=0)
        env.step(block("touch mine"))
        text, *_ = env.step(block("trap '' INT; while :; do sleep 0.1; done"))
        assert "new shell was started" in text or "new one was started" in text
        assert env.step(block("ls mine"))[0] == "mine"


def test_a_shell_that_ends_is_restarted(env):
    assert "ended with status 3" in env.step(block("exit 3"))[0]
    assert env.step(block("echo on"))[0] == "on"


@pytest.mark.parametrize("command", [
    "rm -rf --no-preserve-root / 2>/dev/null; echo survived",
    "kill -9 -1; kill -INT 1; echo survived",
    "exec 9>&- 60>&-; for fd in $(seq 3 50); do eval \"exec $fd>&-\"; done; echo survived",
])  # fmt: skip
def test_dangerous_programs_break_nothing_here(tmp_path, command):
    mark = tmp_path / "mark"
    mark.write_text("here")
    with gem_core.make("terminal:Tasks-v0", seconds=60) as env:
        env.reset(seed=0)
        env.step(block(command))
        assert env.step(block(f"cat {mark}"))[0].endswith("(exit status 1)")  # nor is it visible
        _, reward, terminated, _, info = env.step(block("submit"))
        assert (reward, terminated, info["success"]) == (0.0, True, False)
        env.reset(seed=0)
        env.step(env.oracle_action())
        assert env.step(env.oracle_action())[1] == 1.0
    assert mark.read_text() == "here"


def test_a_sandbox_that_has_ended_is_reported_and_not_an_exception(env):
    env.step(block("ls"))
    env.unwrapped._shell._transport._session.close()
    env.unwrapped._shell._transport._begun = True  # as if the kernel had killed it
    text, reward, *_ = env.step(block("ls"))
    assert (text, reward) == ("(The machine of the shell has ended, and the files with it.)", 0.0)
    assert env.step(block("submit"))[1:3] == (0.0, True)
    env.reset(seed=0)
    env.step(env.oracle_action())
    assert env.step(env.oracle_action())[1] == 1.0


def test_a_fork_bomb_is_bounded():
    with gem_core.make("terminal:Tasks-v0", seconds=2) as env:
        env.reset(seed=0)
        for command in (":(){ :|:& };:", "echo 1", "ls"):
            assert env.step(block(command))[1] == 0.0
        assert env.step(block("submit"))[2]


def test_a_response_without_a_command_is_a_format_error(env):
    text, reward, terminated, truncated, info = env.step("I would like to list the files.")
    assert (reward, terminated, truncated, info["invalid"]) == (-0.1, False, False, "format")
    assert text == "No block of bash commands was found."


def test_a_command_of_a_megabyte_is_rejected_and_its_output_bounded(env):
    _, reward, terminated, _, info = env.step(block("echo " + "x" * 2**20))
    assert (reward, terminated, info["invalid"]) == (0.0, False, "illegal")
    assert len(env.step(block("head -c 1000000 /dev/zero | tr '\\0' x"))[0]) < 5000


def test_the_last_turn_submits():
    with gem_core.make("terminal:Tasks-v0", max_turns=1, seconds=60) as env:
        env.reset(seed=0)
        assert env.step(env.oracle_action())[1:3] == (1.0, True)
        env.reset(seed=0)
        _, reward, terminated, truncated, info = env.step(block("ls"))
        assert (reward, terminated, truncated, info["success"]) == (0.0, False, True, False)


def test_a_restored_episode_continues(env):
    env.step(block("x=5; echo $x > five"))
    with gem_core.make("terminal:Tasks-v0", seconds=60) as other:
        other.reset(options={"state": json.loads(json.dumps(env.get_state()))})
        assert other.step(block("cat five; echo $x"))[0] == "5\n5"


@pytest.mark.parametrize("kwargs", [
    {"tasks": "nothing"}, {"tasks": []}, {"max_turns": 0}, {"seconds": 0}, {"seconds": True},
    {"level": "castle"}, {"max_output": 1},
])  # fmt: skip
def test_bad_arguments(kwargs):
    with pytest.raises(ConfigError):
        gem_core.make("terminal:Tasks-v0", **kwargs)


def test_a_weaker_level_is_rejected():
    with pytest.raises(SandboxError, match="min_level"):
        gem_core.make("terminal:Tasks-v0", level="process")


def test_an_index_out_of_range():
    with gem_core.make("terminal:Files-v0") as env, pytest.raises(ConfigError, match="from 0 to 7"):
        env.reset(options={"index": 8})


def test_the_last_block_counts():
    text = f"{block('ls')}\n{FENCE}python\nprint(1)\n{FENCE}\n{block('pwd')}"
    assert shell_block(text) == ["pwd"]
    assert shell_block(f"{FENCE}python\nprint(1)\n{FENCE}") == []


@pytest.mark.parametrize(
    "text", ["submit", "Done.\nsubmit", "```\nsubmit\n```", "```bash\nsubmit;\n```", "`submit`", "submit;"]
)
def test_ways_to_submit(env, text):
    env.step(env.oracle_action())
    assert env.step(text)[1:3] == (1.0, True)


def test_commands_before_submit_in_one_block_are_run(env):
    solution = env.unwrapped.task.solution.strip()
    assert env.step(block(f"{solution}\nsubmit"))[1:3] == (1.0, True)


def test_an_unmarked_block_is_a_command_and_a_word_in_a_sentence_is_not(env):
    assert env.step("```\necho hi\n```")[0] == "hi"
    assert env.step("I will submit the result later.")[4]["invalid"] == "format"
    assert env.step(block(" "))[0] == "The block of bash commands is empty."
