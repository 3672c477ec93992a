"""Gymnasium's environments as environments of text."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_lab import check_env

gymnasium = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402

TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # until gymnasium 1.3
IDS = ["FrozenLake-v1", "Blackjack-v1", TAXI, "CartPole-v1", "Pendulum-v1"]


class Panel(gymnasium.Env):
    """Test environment with all kinds of actions, which takes what it is given and shows it."""

    def __init__(self, kind="dict", observation=None):
        self.observation_space = spaces.Text(1000)
        pair = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = {
            "dict": spaces.Dict({"push": pair, "button": spaces.Discrete(3, start=1)}),
            "digits": spaces.MultiDiscrete([2, 5]),
            "bits": spaces.MultiBinary(3),
            "text": spaces.Text(8, charset="ab"),
            "graph": spaces.Graph(spaces.Discrete(2), None),
        }[kind]
        self.shown = observation

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return "start" if self.shown is None else self.shown, {}

    def step(self, action):
        assert self.action_space.contains(action)
        return repr(action), 0.5, True, True, {}


gymnasium.register("tests/Panel-v0", Panel)
panel = partial(gem_core.make, "gymnasium:tests/Panel-v0")


@pytest.mark.parametrize("id", IDS)
def test_episodes_equal_native_play(id):
    env = gem_core.make(f"gymnasium:{id}")
    for seed in range(5):
        env.reset(seed=seed)
        native = gymnasium.make(id)
        native.reset(seed=env.unwrapped.foreign_seed)
        ended = False
        while not ended:
            action = env.sample_random_action()
            _, reward, terminated, truncated, _ = env.step(action)
            _, *expected, _ = native.step(env.unwrapped.read(action).value)
            assert [reward, terminated, truncated] == expected
            ended = terminated or truncated
    env.close()


@pytest.mark.parametrize("id", ["FrozenLake-v1", "Pendulum-v1"])
def test_the_rules_hold(id):
    spec = gem_core.spec(f"gymnasium:{id}")
    report = check_env(replace(spec, kwargs=spec.kwargs | {"max_turns": 15}), seeds=(0,))
    assert {"forks_are_equal_and_independent", "processes_change_nothing"} < set(report.passed)


def test_success_is_the_reward_threshold():
    env = gem_core.make("gymnasium:CartPole-v1")
    assert (env.unwrapped.success_at, env.unwrapped.max_turns) == (475.0, 500)
    env = gem_core.make("gymnasium:Blackjack-v1")  # has neither threshold nor limit
    assert (env.unwrapped.success_at, env.unwrapped.max_turns) == (None, 200)
    outcomes = set()
    for seed in range(20):
        env.reset(seed=seed)
        _, reward, _, _, info = env.step(r"\boxed{stick}")
        outcomes.add((reward > 0, info["success"]))
    assert outcomes == {(True, True), (False, False)}


def test_a_discrete_action_has_a_name_and_a_number():
    env = gem_core.make("gymnasium:FrozenLake-v1", settings={"is_slippery": False})
    observation, info = env.reset(seed=0)
    assert observation.endswith("[S]FFF\nFHFH\nFFFH\nHFFG\nobservation: 0")
    assert info["suffix"].endswith("one of: left, down, right, up.")
    assert env.step(r"\boxed{Right}")[0].endswith("observation: 1")
    assert env.step(r"\boxed{1}")[1:3] == (0.0, True)


def test_a_response_without_an_action_is_not_played():
    env = gem_core.make("gymnasium:CartPole-v1", max_turns=2)
    env.reset(seed=0)
    observation, reward, _, truncated, info = env.step("right")
    assert (observation, reward, truncated, info["invalid"]) == (
        "No \\boxed{...} was found.",
        -1.0,
        False,
        "format",
    )
    _, reward, _, truncated, info = env.step(r"\boxed{2}")
    assert (reward, truncated, info["invalid"], info["success"]) == (-1.0, True, "format", False)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("dict", '{"push": [0.5, -1], "button": 3}', '{"push": [0.5, -2], "button": 3}'),
        ("digits", "[1, 4]", "[4, 1]"),
        ("bits", "[0, 1, 1]", "[0, 1]"),
        ("text", "abba", "c"),
    ],
)
def test_actions_of_other_spaces(kind, good, bad):
    env = panel(settings={"kind": kind})
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{bad}}}")[4]["invalid"] == "illegal"
    observation, reward, terminated, truncated, _ = env.step(f"\\boxed{{{good}}}")
    assert (reward, terminated, truncated) == (0.5, True, False)
    assert observation
    env.reset(seed=0)
    assert env.step(env.sample_random_action())[4]["invalid"] is None


def test_large_arrays_and_odd_spaces_need_a_function():
    with pytest.raises(ConfigError, match=r"Graph.* have no text form; give to_action"):
        panel(settings={"kind": "graph"})
    env = panel(settings={"kind": "text", "observation": np.zeros((64, 64, 3))})
    with pytest.raises(ConfigError, match=r"array of shape \(64, 64, 3\), too large .* to_text"):
        env.reset(seed=0)
    env = panel(
        settings={"kind": "graph", "observation": np.zeros((64, 64, 3))},
        to_text="tests.bridges.gymnasium.test_env:count_values",
        to_action=lambda env, response: env.action_space.sample() if response == "any" else None,
    )
    assert env.reset(seed=0)[0].endswith("12288 values")
    assert env.step("none")[4]["invalid"] == "format"
    assert env.step("any")[2]


def count_values(env, observation):
    return f"{np.size(observation)} values"


def test_wrong_arguments_are_reported_in_one_line():
    with pytest.raises(
        ConfigError, match=r"gymnasium:Nope-v0 cannot be made: Environment `Nope` doesn't exist"
    ):
        gem_core.make("gymnasium:Nope-v0")
    with pytest.raises(ConfigError, match="expected 2 names, one per action"):
        gem_core.make("gymnasium:CartPole-v1", actions=["left"])
    with pytest.raises(ConfigError, match="settings='human': expected a dict"):
        gem_core.make("gymnasium:CartPole-v1", settings="human")
    with pytest.raises(ConfigError, match="expected None, as actions are Box"):
        gem_core.make("gymnasium:Pendulum-v1", actions=["left"])


def test_it_runs_in_a_vector_environment():
    with gem_core.make_vec("gymnasium:CartPole-v1", 2, max_turns=3) as envs:
        envs.reset(seed=0)
        envs.step([r"\boxed{left}"] * 2)
        rewards = envs.step([r"\boxed{left}", "?"])[1]
    assert json.dumps(list(map(float, rewards))) == "[1.0, -1.0]"
