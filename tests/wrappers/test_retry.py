from __future__ import annotations

import json

import pytest

import gem_core
from gem_core.errors import ConfigError, ResetNeeded
from gem_core.wrappers import Retry
from gem_envs.datasets import CodeEnv, MathEnv
from gem_lab import check_env
from tests.support import ScriptedEnv

ROWS = [{"problem": "2 + 2", "answer": "4"}]
PROGRAMS = [{"problem": "Double it.", "tests": {"inputs": ["1", "2"], "outputs": ["2", "4"]}}]


def math_env(**kwargs):
    return Retry(MathEnv(dataset=ROWS, symbolic=False), **kwargs)


def test_a_failed_attempt_continues_and_reports_it():
    env = math_env()
    assert env.reset(seed=0)[1]["suffix"] == "Attempts left: 3."
    first = env.step(r"\boxed{5}")
    assert first == (
        "That is not right.", 0.0, False, False,
        {"invalid": None, "suffix": "Attempts left: 2.", "parsed_action": "5"},
    )  # fmt: skip
    second = env.step("no box")
    assert second[1:4] == (0.0, False, False)
    assert second[4]["invalid"] == "format"
    third = env.step(r"\boxed{4}")
    assert third[1:4] == (1.0, True, False)
    assert third[4]["success"] is True
    with pytest.raises(ResetNeeded):
        env.step(r"\boxed{4}")


def test_the_last_attempt_truncates():
    env = math_env(max_attempts=2)
    env.reset(seed=0)
    env.step(r"\boxed{5}")
    _, reward, terminated, truncated, info = env.step(r"\boxed{5}")
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, True, False)


def test_the_same_item_is_repeated():
    env = Retry(MathEnv(dataset=[{"problem": str(n), "answer": str(n)} for n in range(50)], symbolic=False))
    env.reset(seed=3)
    index = env.index
    env.step(r"\boxed{x}")
    assert env.index == index
    assert env.step(env.oracle_action())[1] == 1.0


def test_a_random_player_does_not_repeat_itself():
    env = gem_core.make("math:Arithmetic-v0-retry", wrappers="")
    env.reset(seed=0)
    first = env.sample_random_action()
    env.step(first)
    assert env.sample_random_action() != first


def test_decay_pays_late_successes_less():
    env = math_env(decay=0.5)
    env.reset(seed=0)
    env.step(r"\boxed{5}")
    env.step(r"\boxed{5}")
    assert env.step(r"\boxed{4}")[1] == 0.25


def test_partial_scores_are_paid_by_their_gain():
    env = Retry(CodeEnv(dataset=PROGRAMS, partial_credit=True), max_attempts=4)
    env.reset(seed=0)
    texts = ["print(2)", "print(9)", "print(4)", "print(2 * int(input()))"]
    steps = [env.step(f"```python\n{text}\n```") for text in texts]
    assert [step[1] for step in steps] == [0.5, 0.0, 0.0, 0.5]
    assert "Test 2 of 2 failed" in steps[0][0]


def test_penalties_are_paid_each_time():
    env = Retry(CodeEnv(dataset=PROGRAMS))
    env.reset(seed=0)
    assert [env.step("no code")[1] for _ in range(3)] == [-0.1, -0.1, -0.1]


def test_a_state_holds_the_attempts():
    env = math_env()
    env.reset(seed=0)
    env.step(r"\boxed{5}")
    state = json.loads(json.dumps(env.get_state()))
    other = math_env()
    other.set_state(state)
    assert other.step(r"\boxed{6}") == env.step(r"\boxed{6}")


def test_an_environment_of_several_turns_keeps_its_own():
    env = Retry(ScriptedEnv([0.0, 0.0]), max_attempts=9)
    env.reset(seed=0)
    assert env.step("a")[2:4] == (False, False)


@pytest.mark.parametrize(
    "kwargs", [{"max_attempts": 0}, {"max_attempts": True}, {"decay": 2}, {"decay": "1"}]
)
def test_bad_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError, match=next(iter(kwargs))):
        math_env(**kwargs)


def test_by_name():
    env = gem_core.make("math:Arithmetic-v0-easy", wrappers="retry(max_attempts=2)")
    rules = ["best_return", "states_survive_json", "forks_are_equal_and_independent", "async_is_the_same"]
    check_env(env.spec, rules=rules)


def test_retry_never_shows_hidden_tests():
    """With five attempts, a table of the inputs and outputs seen so far solved nearly every task."""
    env = Retry(CodeEnv(dataset=PROGRAMS), max_attempts=5)
    env.reset(seed=0)
    programs = {
        "print(7)": "Test 1 of 2 failed: the output is wrong.",
        "raise ValueError(input())": "Test 1 of 2 failed: the program raised ValueError.",
        "raise type('E' + input(), (Exception,), {})": "Test 1 of 2 failed: the program failed.",
        "print(2) if input() == '1' else print(input)": "Test 2 of 2 failed: the output is wrong.",
    }
    for program, hint in programs.items():
        assert env.step(f"```python\n{program}\n```")[0] == hint


def test_retry_rejects_environments_that_two_attempts_solve():
    with pytest.raises(ConfigError, match="max_attempts=2: expected fewer than the 2 answers that"):
        gem_core.make("logic:Proofs-v0", wrappers="retry(max_attempts=2)")
