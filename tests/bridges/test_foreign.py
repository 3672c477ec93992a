"""`ForeignEnv` adds what an environment of another ecosystem lacks."""

from __future__ import annotations

import json
import sys
from random import Random

import numpy as np
import pytest

import gem_core
from gem_bridges import ForeignEnv
from gem_bridges._foreign import json_value
from gem_core.errors import ConfigError, EnvError, MissingDependency, ResetNeeded
from gem_lab import check_env


class Countdown(ForeignEnv):
    """Foreign environment of the tests: count down from a random number, with a fault on request."""

    def __init__(self, fault: str = "", max_turns: int | None = 20, success_at: float | None = 3) -> None:
        super().__init__("countdown", max_turns, success_at)
        self.fault = fault

    def begin(self, seed):
        if self.fault == "reset":
            raise KeyError("no game")
        self.left = Random(seed).randint(3, 9)
        return f"{self.left} left \ud800", {"left": np.int64(self.left)}

    def advance(self, action):
        if self.fault == "step":
            raise RuntimeError("broken pipe")
        taken = "take" in action
        self.left -= taken
        reward = float("nan") if self.fault == "reward" else np.float32(taken)
        invalid = {} if taken else {"invalid": "format"}
        observation = f"{self.left} left" + (f" {id(self)}" if self.fault == "chance" else "")
        return observation, reward, self.left == 0, self.left == 0, {"left": np.array([self.left])} | invalid

    def sample_random_action(self):
        return "take"


def test_every_rule_of_the_contract_holds():
    assert "forks_are_equal_and_independent" in check_env(Countdown).passed


def test_values_of_another_ecosystem_become_plain_ones():
    env = Countdown()
    observation, info = env.reset(seed=0)
    assert (observation, info) == ("6 left \ufffd", {"left": 6})
    observation, reward, terminated, truncated, info = env.step("take")
    assert (reward, terminated, truncated, info) == (1.0, False, False, {"left": [5], "invalid": None})
    assert type(reward) is float
    assert json_value({1: (np.float64("inf"), np.bool_(True), {"b", "a"}, b"x")}) == {
        "1": [None, True, ["a", "b"], "b'x'"]
    }


def test_one_end_flag_and_success():
    env = Countdown()
    env.reset(seed=0)
    for _ in range(5):
        env.step("take")
    *_, terminated, truncated, info = env.step("take")
    assert (terminated, truncated, info["success"]) == (True, False, True)
    with pytest.raises(ResetNeeded):
        env.step("take")


def test_the_environments_own_turn_limit_is_not_a_success():
    env = Countdown(max_turns=4)
    env.reset(seed=0)
    for _ in range(3):
        env.step("take")
    *_, terminated, truncated, info = env.step("take")
    assert (terminated, truncated, info["success"]) == (False, True, False)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("reset", "countdown: the reset raised KeyError: 'no game'"),
        ("step", "countdown: step 1 raised RuntimeError: broken pipe"),
        ("reward", "countdown: the reward of step 1 was nan"),
    ],
)
def test_a_failure_names_the_environment(fault, message):
    env = Countdown(fault)
    with pytest.raises(EnvError, match=message):
        env.reset(seed=0) and env.step("take")
    with pytest.raises(ResetNeeded):
        env.step("take")


def test_a_state_is_restored_by_replay():
    env = Countdown()
    env.reset(seed=3)
    env.step("take")
    state = json.loads(json.dumps(env.get_state()))
    copy = Countdown()
    assert copy.reset(options={"state": state})[0] == env.last_result[0]
    assert copy.step("take") == env.step("take")
    with pytest.raises(ConfigError, match="not a state of Countdown"):
        copy.reset(options={"state": {}})


def test_a_replay_that_differs_is_an_error():
    env = Countdown("chance")
    env.reset(seed=0)
    env.step("take")
    with pytest.raises(EnvError, match="countdown is not deterministic"):
        Countdown("chance").set_state(env.get_state())


def test_a_missing_package_of_textarena_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(MissingDependency, match=r"pip install 'gem-core\[textarena\]'"):
        gem_core.make("textarena:Wordle-v0")


class Dice(ForeignEnv):
    """Foreign environment with six items that draws a number below six from the seed that it gets."""

    def __init__(self) -> None:
        super().__init__("dice", None, None, num_items=6)

    def begin(self, seed):
        return str(Random(seed).randrange(6)), {}


def test_the_item_and_the_foreign_draws_are_independent():
    env, equal = Dice(), 0
    for seed in range(600):
        equal += int(env.reset(seed=seed)[0]) == env.item
    assert 60 < equal < 140  # 100 expected, standard deviation 9
