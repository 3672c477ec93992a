"""The environment with its tools: a real server, real calls, states, and grading."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import gem_core
from gem_core import render_observation
from gem_core.errors import ConfigError
from gem_lab import check_env
from tests.support import needs

pytestmark = needs("mcp", "mcp")


def call(name: str, **arguments: str) -> str:
    called = f"<tool_name>{name}</tool_name><arguments>{json.dumps(arguments)}</arguments>"
    return f"<tool_call>{called}</tool_call>"


@pytest.fixture
def env():
    with gem_core.make("database:Shop-v0") as made:
        made.reset(seed=0)
        yield made


def test_check_env():
    rules = (
        "reset_results step_results random_actions_are_legal episodes_end best_return twins_are_equal "
        "states_survive_json forks_are_equal_and_independent resets_start_from_a_state "
        "instances_are_independent "
        "junk_earns_nothing unknown_options unknown_arguments reset_is_needed closing_twice_is_fine"
    )
    check_env("database:Tasks-v0", rules=rules.split(), seeds=(0,))


@pytest.mark.parametrize("group", ["Shop", "Library", "Clinic", "Fleet", "School"])
def test_the_oracle_solves_every_task(group):
    with gem_core.make(f"database:{group}-v0") as env:
        for index in range(env.unwrapped.num_items):
            env.reset(options={"index": index})
            _, _, ended, _, info = env.step(env.oracle_action())
            assert (ended, info["use_tool"], "tool_error" in info) == (False, True, False)
            text, reward, terminated, _, info = env.step(env.oracle_action())
            assert (reward, terminated, info["success"]) == (1.0, True, True), text


def test_a_wrong_answer_and_collateral_damage():
    with gem_core.make("database:Tasks-v0", tasks="bestseller") as env:
        for index, (sql, answer, said) in enumerate([
            (None, "statue", "answer"), ("DELETE FROM {}items WHERE order_id = 7", None, "table {}items"),
            ("CREATE TABLE notes (a)", None, "table notes"),
        ]):  # fmt: skip
            env.reset(seed=index)
            prefix = env.unwrapped.task.instruction.split()[1]
            if sql:
                env.step(call("execute", sql=sql.format(prefix)))
            text, reward, terminated, *_ = env.step(f"\\boxed{{{answer or env.unwrapped.task.answer}}}")
            assert (text, reward, terminated) == (f"Not as it should be: {said.format(prefix)}.", 0.0, True)


RIGHT = {
    "6": ["6", " 6 ", "6.", "6.0", "+6", "06", "$6$", r"\text{6}", "**6**.", '"6"', "Answer: 6"],
    "X-41 41": ["x-41, 41", "X-41  41", "X-41,41.0", r"X-41\ 41", "X-41 41."],
    "Chess": [r"\textbf{chess}"],
}
WRONG = {
    "6": ["-6", "7", "16", "6.5", "60", "6 6", "0.6", "not 6", r"\text{}", "9" * 5000],
    "X-41 41": ["X-41", "41 X-41", "X-4 141", "X-41 -41", "X 41 41", "X-4141"],
    "Chess": ["chess club", "checkers"],
}


@pytest.mark.parametrize(("answers", "reward"), [(RIGHT, 1.0), (WRONG, 0.0)])
@pytest.mark.parametrize("answer", RIGHT)
def test_an_answer_counts_in_any_notation(answer, answers, reward):
    with gem_core.make("database:Tasks-v0", tasks="bestseller") as env:
        for given in answers[answer]:
            env.reset(seed=0)
            env.unwrapped._task = replace(env.unwrapped.task, answer=answer)
            assert env.step(f"\\boxed{{{given}}}")[1] == reward, given


def test_tools_show_the_database_of_this_episode_only(env):
    with gem_core.make("database:Shop-v0") as other:
        other.reset(seed=1)
        other.step(call("execute", sql="CREATE TABLE mine (a)"))
        assert "mine" in other.step(call("list_tables"))[0]
        assert "mine" not in env.step(call("list_tables"))[0]
        forged = call("list_tables", database=other.unwrapped.tool_scope)
        assert "mine" not in env.step(forged)[0]  # a model cannot choose a database


def test_a_restored_episode_has_its_database(env):
    env.step(call("execute", sql="CREATE TABLE mine (a); INSERT INTO mine VALUES (41)"))
    state = json.loads(json.dumps(env.get_state()))
    env.step(call("execute", sql="DROP TABLE mine"))
    with gem_core.make("database:Shop-v0") as other:
        other.reset(options={"state": state})
        assert "42" in other.step(call("query", sql="SELECT a + 1 FROM mine"))[0]


def test_responses_without_a_call_or_a_box_are_bounded(env):
    assert "Turns left" not in render_observation(*env.reset(seed=0))  # calls of tools are not turns
    for turn in range(3):
        _, reward, terminated, truncated, info = env.step("I think about it.")
        left = info["suffix"].splitlines()[0] if turn < 2 else ""
        assert left == ("" if turn == 2 else f"Responses left with neither a call nor a box: {2 - turn}.")
        assert (reward, terminated, truncated, info["invalid"]) == (-0.1, False, turn == 2, "format")


@pytest.mark.parametrize("kwargs", [{"tasks": "nothing"}, {"tasks": []}, {"max_errors": 0}])
def test_bad_arguments(kwargs):
    with pytest.raises(ConfigError):
        gem_core.make("database:Tasks-v0", **kwargs)
