"""Tasks of several steps in Harbor's format, from folders written by the tests."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("yaml", reason="terminal-bench needs the extra 'terminal'")

import gem_core
from gem_core.errors import DataError
from gem_envs._terminal.folder import _rewards
from gem_envs._terminal.formats import read_task
from gem_envs.sandbox import self_check
from tests.envs.terminal.test_env import block
from tests.envs.terminal.test_folder import write

needs_a_shell = pytest.mark.skipif(
    not self_check()["namespace"].available, reason=self_check()["namespace"].reason
)

SETTINGS = """
schema_version = "1.4"
multi_step_reward_strategy = "{strategy}"

[metadata]
difficulty = "easy"

[verifier]
timeout_sec = 60.0
env = {{ UNIT = "egg" }}

[environment]
build_timeout_sec = 600.0

[[steps]]
name = "count"
min_reward = 0.5
[steps.agent]
timeout_sec = 60.0

[[steps]]
name = "sort"
min_reward = {{ sorted = 1.0 }}

[[steps]]
name = "total"
[steps.verifier]
timeout_sec = 50.0
"""
FILES = {
    "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\nCOPY birds.txt ./\n",
    "environment/birds.txt": "wren 3\ncoot 5\n",
    "tests/reward.sh": 'echo "$1" > /logs/verifier/reward.txt\n',
    "tests/test.sh": 'test "$(cat total.txt)" = "16 $UNIT"; bash /tests/reward.sh $((1 - $?))\n',
    "steps/count/instruction.md": "Write the number of lines of birds.txt to count.txt.\n",
    "steps/count/tests/test.sh": "[ -f count.txt ] || exit 1\n"
    'grep -qx 2 count.txt && bash "$TEST_DIR/reward.sh" 1 || bash "$TEST_DIR/reward.sh" 0.5\n',
    "steps/count/solution/solve.sh": "wc -l < birds.txt > count.txt\n",
    "steps/sort/instruction.md": "Sort birds.txt by name into sorted.txt.\n",
    "steps/sort/workdir/setup.sh": "cat more.txt >> birds.txt && rm more.txt\n",
    "steps/sort/workdir/more.txt": "auk 8\n",
    "steps/sort/tests/test.sh": "S=$(sort birds.txt | cmp -s - sorted.txt && echo 1 || echo 0)\n"
    'echo "{\\"sorted\\": $S, \\"tidy\\": 1}" > /logs/verifier/reward.json\n',
    "steps/sort/solution/solve.sh": "sort birds.txt > sorted.txt\n",
    "steps/total/instruction.md": "Write the sum of the numbers and the word egg to total.txt.\n",
    "steps/total/solution/solve.sh": "echo $(($(cut -d ' ' -f 2 birds.txt | paste -sd +))) egg > total.txt\n",
}


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    root = tmp_path_factory.mktemp("harbor")
    for strategy in ("final", "mean"):
        write(root / strategy, {**FILES, "task.toml": SETTINGS.format(strategy=strategy)})
    with gem_core.make("eval:TerminalBench", folder=str(root), seconds=60) as env:
        yield env


def play(env, index, *commands):
    env.reset(options={"index": index})
    return [env.step(block(command)) for command in commands]


@needs_a_shell
@pytest.mark.parametrize(("index", "shares"), [(0, [0, 0, 1]), (1, [1 / 3, 1 / 3, 1 / 3])])
def test_the_reference_solutions_earn_the_rewards_of_all_steps(env, index, shares):
    observation, _ = env.reset(options={"index": index})
    assert "number of lines" in observation
    assert "Sort birds.txt" not in observation
    rewards = []
    for number in range(3):
        assert env.step(env.oracle_action())[1:4] == (0.0, False, False)
        text, reward, terminated, _, info = env.step(env.oracle_action())
        rewards.append(reward)
        assert terminated is (number == 2)
    assert rewards == pytest.approx(shares)
    assert (text, info["success"]) == ("Step 3 of 3 is over. All tests pass.", True)


@needs_a_shell
def test_a_partial_reward_that_is_high_enough_leads_to_the_next_step(env):
    *_, (text, reward, ended, _, _) = play(env, 1, "echo 7 > count.txt", "submit")
    assert (reward, ended) == (pytest.approx(0.5 / 3), False)
    assert text == "Step 1 of 3 is over. The next instruction:\n\nSort birds.txt by name into sorted.txt."
    assert (
        env.step(block("cat birds.txt; ls; ls /tests"))[0]
        == "wren 3\ncoot 5\nauk 8\nbirds.txt\ncount.txt\nsetup.sh"
    )


@needs_a_shell
def test_a_step_below_its_minimum_reward_ends_the_episode(env):
    *_, (text, reward, terminated, _, info) = play(env, 1, "touch x", "submit")
    assert (text, reward, terminated) == ("Step 1 is not good enough for the next one.", 0.0, True)
    assert (info["success"], info["metrics"]["progress"]) == (False, 0.0)
    *_, (_, reward, terminated, _, info) = play(
        env, 1, "echo 2 > count.txt", "submit", "touch sorted.txt", "submit"
    )
    assert (reward, terminated) == (pytest.approx(0.5 / 3), True)  # the mean of the two named rewards
    assert info["metrics"]["progress"] == pytest.approx(1 / 3)


@needs_a_shell
def test_a_saved_state_holds_the_step(env):
    play(env, 1, "echo 2 > count.txt", "submit", "sort birds.txt > sorted.txt")
    state = json.loads(json.dumps(env.get_state()))
    env.reset(seed=1)
    env.set_state(state)
    assert env.step(block("cat sorted.txt"))[0] == "auk 8\ncoot 5\nwren 3"
    assert env.step(block("submit"))[1] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "rewards"),
    [
        ("0.25\n", {"reward": 0.25}),
        ('{"reward": 1, "style": 0.5}', {"reward": 1.0, "style": 0.5}),
        ("7", {"reward": 1.0}),
        ("-1", {"reward": 0.0}),
        ("NaN", {}),
        ('{"reward": "high"}', {}),
        ("", {}),
        ("[1]", {}),
    ],
)
def test_rewards_of_a_script(text, rewards):
    assert _rewards(text.encode()) == rewards


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task.toml": "[[steps"}, "its task.toml cannot be read"),
        ({"task.toml": '[[steps]]\nname = "../count"\n'}, "the name of step 1 is not the name of a folder"),
        ({"task.toml": '[[steps]]\nname = "none"\n'}, "it has no instruction"),
        ({"environment/docker-compose.yaml": "services: {}\n"}, "it needs several containers"),
        (
            {"task.toml": '[verifier]\nenvironment_mode = "separate"\n'},
            "its tests need a machine of their own",
        ),
        (
            {"task.toml": '[verifier.env]\nKEY = "${KEY}"\n'},
            "its tests need environment variables of the host",
        ),
        ({"task.toml": '[environment]\nworkdir = "/root"\n'}, "its folder is /root"),
    ],
)
def test_tasks_that_cannot_be_played(tmp_path, changes, reason):
    write(tmp_path, {**FILES, "instruction.md": "Do it.", **changes})
    with pytest.raises(DataError, match=reason):
        read_task(tmp_path, files=True)
