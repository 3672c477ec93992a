"""SkyRL's environments here, and ours behind skyrl-gym's own `make`."""

from __future__ import annotations

import copy
import json

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_lab import check_env

skyrl_gym = pytest.importorskip("skyrl_gym")
from gem_bridges.skyrl import register_gem, task_rows  # noqa: E402
from gem_core.tasks import reset_arguments  # noqa: E402

ROWS = [
    {
        "prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": f"What is {n} + 1?"}],
        "reward_spec": {"ground_truth": str(n + 1)},
        "extra_info": {"max_turns": 3},
    }
    for n in range(8)
]


@pytest.mark.parametrize("name", ["gsm8k", "gsm8k_multi_turn"])
def test_five_episodes_equal_native_play(name):
    env = gem_core.make(f"skyrl:{name}", rows=ROWS)
    for item in range(5):
        observation, _ = env.reset(options={"index": item})
        row = copy.deepcopy(ROWS[item])
        native = skyrl_gym.make(name, env_config={}, extras=row)
        messages, _ = native.init(row["prompt"])
        assert observation == "\n\n".join(message["content"] for message in messages)
        for action in ("It is #### 3", "#### 4", "#### 5"):
            observation, reward, terminated, truncated, info = env.step(action)
            output = native.step(action)
            assert (reward, terminated, truncated) == (output["reward"], output["done"], False)
            assert observation == "".join(message["content"] for message in output["observations"])
            if terminated:
                assert info["success"] == (env.total_reward >= 1)
                break
        assert terminated


def test_the_rules_hold_for_drawn_and_chosen_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    check_env(
        "skyrl:gsm8k_multi_turn", rows=str(path), seeds=(0,), actions=["#### 4", "#### 5", "I do not know."]
    )
    env = gem_core.make("skyrl:gsm8k", rows=str(path))
    assert sorted([*env.items("train"), *env.items("eval")]) == list(range(8))
    env.reset(options={"index": 6})
    state = json.loads(json.dumps(env.get_state()))
    other = gem_core.make("skyrl:gsm8k", rows=str(path))
    other.reset(options={"state": state})
    assert other.item == 6
    assert other.step("#### 7")[1:3] == (1.0, True)
    with pytest.raises(ConfigError, match="index=8: expected a whole number from 0 to 7"):
        env.reset(options={"index": 8})


class Judging(skyrl_gym.envs.base_text_env.BaseTextEnv):
    """Says whether the task was solved, whatever the reward."""

    def __init__(self, env_config=None, extras=None):
        super().__init__()

    def step(self, action):
        solved = action == "yes"
        return {"observations": [], "reward": 0.5, "done": True, "metadata": {"success": solved}}


def test_the_verdict_of_an_environment_is_the_success():
    if "judging" not in skyrl_gym.registry:
        skyrl_gym.register("judging", f"{__name__}:Judging")
    env = gem_core.make("skyrl:judging", rows=ROWS)
    for answer in ("yes", "no"):
        env.reset(seed=0)
        *_, info = env.step(answer)
        assert info["success"] == (answer == "yes")


def test_wrong_arguments_are_reported_in_one_line():
    with pytest.raises(ConfigError, match="skyrl:gsm8k needs rows"):
        gem_core.make("skyrl:gsm8k")
    with pytest.raises(ConfigError, match=r"unknown skyrl-gym environment 'nope'\. Available: aime, gsm8k"):
        gem_core.make("skyrl:nope", rows=ROWS)
    with pytest.raises(ConfigError, match="skyrl:no_module:x: 'no_module' cannot be imported"):
        gem_core.make("skyrl:no_module:x", rows=ROWS)
    with pytest.raises(ConfigError, match="a row has the fields question, but no 'prompt'"):
        gem_core.make("skyrl:gsm8k", rows=[{"question": "1 + 1?"}])


@pytest.mark.parametrize("id", ["game:GuessTheNumber-v0-easy", "math:Arithmetic-v0(max_number=9)"])
def test_five_episodes_of_ours_in_skyrl(id):
    register_gem()
    rows = task_rows(id, 5, system="Play.")
    assert json.loads(json.dumps(rows)) == rows
    for row in rows:
        extras = {
            key: value for key, value in copy.deepcopy(row).items() if key not in ("prompt", "env_class")
        }
        theirs = skyrl_gym.make(row["env_class"], env_config={}, extras=extras)
        chat, _ = theirs.init(row["prompt"])
        task = theirs.task
        ours = gem_core.make(task["env_id"], **task["env_kwargs"])
        observation, info = ours.reset(**reset_arguments(task))
        assert chat[0] == {"role": "system", "content": "Play."}
        assert chat[1]["content"].startswith(observation)
        total, done = 0.0, False
        while not done:
            action = ours.sample_random_action()
            _, reward, terminated, truncated, info = ours.step(action)
            output = theirs.step(action)
            done = output["done"]
            assert (output["reward"], done) == (reward, terminated or truncated)
            assert output["metadata"]["truncated"] == truncated
            total += reward
        metrics = theirs.get_metrics()
        assert (metrics["gem/return"], metrics["gem/success"]) == (total, float(info["success"]))
        theirs.close()


def test_the_turn_limit_of_skyrl_truncates():
    register_gem()
    (row,) = task_rows("game:Mastermind-v0", 1)
    env = skyrl_gym.make("gem", env_config={}, extras={"extra_info": row["extra_info"], "max_turns": 2})
    env.init(row["prompt"])
    action = env.env.sample_random_action()
    assert not env.step(action)["done"]
    output = env.step(action)
    assert (output["done"], output["metadata"]["truncated"], output["observations"]) == (True, True, [])
    assert env.get_metrics()["gem/truncation_rate"] == 1.0
