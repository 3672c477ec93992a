"""Tasksets of verifiers as environments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_lab import check_env
from tests.bridges.verifiers.model import guess

pytest.importorskip("verifiers")


@pytest.fixture
def sums(monkeypatch):
    """The id of a taskset in this folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "verifiers:gem-test-sums"


def test_one_turn_and_its_reward(sums):
    env = gem_core.make(sums)
    assert env.reset(options={"index": 3})[0] == "Add.\n\n3 + 1?"
    _, reward, terminated, truncated, info = env.step("4")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert info["rewards"] == {"right": 1.0}
    env.reset(options={"index": 3})
    assert env.step("5")[1] == 0.0
    assert sorted([*env.items("train"), *env.items("eval")]) == list(range(8))
    env.close()


def test_the_rules_hold(sums):
    rules = ["step_results", "episodes_end", "reset_is_needed", "twins_are_equal", "junk_earns_nothing",
             "forks_are_equal_and_independent", "closing_twice_is_fine", "specs_travel"]  # fmt: skip
    report = check_env(sums, seeds=(0,), rules=rules, actions=["1", "2", "3"])
    assert set(report.passed) == set(rules)


def test_a_state_in_the_middle_of_a_run():
    config = {"env_id": "game:GuessTheNumber-v0-easy"}
    env = gem_core.make("verifiers:gem-verifiers", config=config)
    observation, _ = env.reset(options={"index": 2})
    messages = [{"role": "user", "content": observation}, {"role": "assistant", "content": guess([])}]
    env.step(messages[-1]["content"])
    state = json.loads(json.dumps(env.get_state()))
    other = gem_core.make("verifiers:gem-verifiers", config=config)
    other.reset(options={"state": state})
    assert other.step(r"\boxed{1}") == env.step(r"\boxed{1}")
    env.close()
    other.close()


def test_unplayable_environments_are_reported_in_one_line():
    with pytest.raises(ConfigError, match="verifiers:nope cannot be loaded: taskset 'nope' not found"):
        gem_core.make("verifiers:nope")
    with pytest.raises(ConfigError, match="config='env_id=x': expected a dict"):
        gem_core.make("verifiers:gem-verifiers", config="env_id=x")
    with pytest.raises(ConfigError, match="env_idd"):
        gem_core.make("verifiers:gem-verifiers", config={"env_idd": "game:GuessTheNumber-v0"})
