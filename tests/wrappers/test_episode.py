from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import gem_core
from gem_core import Env, Wrapper, wrap
from gem_core.errors import ConfigError, ResetNeeded
from tests.support import ScriptedEnv
from tests.wrappers.test_observation import Telling


def test_statistics_count_and_add_up() -> None:
    env = wrap(ScriptedEnv([0.5, -0.25, 1.0]), "episode_statistics")
    _, info = env.reset(seed=0)
    assert info == {
        "step_counter": 0,
        "cumulative_rewards": 0.0,
        "prev_ep_step_counter": None,
        "prev_ep_cumulative_rewards": None,
    }
    told = [env.step("x")[4] for _ in range(3)]
    assert [(i["step_counter"], i["cumulative_rewards"]) for i in told] == [(1, 0.5), (2, 0.25), (3, 1.25)]
    assert (env.step_counter, env.cumulative_rewards) == (3, 1.25)
    assert "metrics" not in told[1]
    assert told[2]["metrics"] == {"return": 1.25, "turns": 3, "invalid_actions": 0, "tool_calls": 0}
    _, info = env.reset()
    assert (info["prev_ep_step_counter"], info["prev_ep_cumulative_rewards"]) == (3, 1.25)
    assert (env.step_counter, env.cumulative_rewards) == (0, 0.0)


def test_statistics_count_invalid_actions_and_tool_calls_beside_the_envs_own_metrics() -> None:
    told: list[Any] = [
        ("rules", {}),
        ("no", {"invalid": "illegal"}),
        ("result", {"invalid": None, "use_tool": True}),
        ("end", {"invalid": "format", "metrics": {"progress": 0.5}}),
    ]
    env = wrap(Telling(told), "episode_statistics")
    env.reset()
    metrics = [env.step("x")[4].get("metrics") for _ in range(3)][-1]
    assert metrics == {"progress": 0.5, "return": 0.0, "turns": 3, "invalid_actions": 2, "tool_calls": 1}
    assert told[-1][1]["metrics"] == {"progress": 0.5}


def test_statistics_of_an_abandoned_episode() -> None:
    env = wrap(ScriptedEnv(), "episode_statistics")
    env.reset()
    env.step("x")
    assert env.reset()[1]["prev_ep_step_counter"] == 1


def test_time_limit_truncates_and_ends() -> None:
    env = wrap(ScriptedEnv([0.0] * 5), "time_limit(max_turns=2)")
    env.reset(seed=0)
    assert env.step("x")[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step("x")
    assert (terminated, truncated, info["success"]) == (False, True, False)
    with pytest.raises(ResetNeeded):
        env.step("x")
    env.reset()
    assert env.step("x")[2:4] == (False, False)


@pytest.mark.parametrize("truncate", [False, True])
def test_time_limit_leaves_the_envs_own_end_alone(truncate: bool) -> None:
    env = wrap(ScriptedEnv([0.0, 1.0], truncate=truncate), "time_limit(max_turns=2)")
    env.reset()
    env.step("x")
    _, reward, terminated, truncated, info = env.step("x")
    assert (reward, terminated, truncated, info["success"]) == (1.0, not truncate, truncate, True)


def test_time_limit_makes_the_best_return_unknown() -> None:
    env = gem_core.make("game:GuessTheNumber-v0")
    assert env.max_return == 1.0
    assert wrap(env, "time_limit(max_turns=2)").max_return is None


@pytest.mark.parametrize("value", [0, -3, 2.0, "4"])
def test_bad_time_limit_is_rejected(value: Any) -> None:
    with pytest.raises(ConfigError, match="expected a whole number of at least 1"):
        wrap(ScriptedEnv(), f"time_limit(max_turns={value!r})")


def test_named_wrappers_compose_and_travel_with_the_spec() -> None:
    stack = "time_limit(max_turns=2), concat_with_action(max_history=4), episode_statistics"
    env = gem_core.make("game:GuessTheNumber-v0", wrappers=stack)
    assert [type(layer).__name__ for layer in _layers(env)] == [
        "EpisodeStatistics", "ConcatWithAction", "TimeLimit", "GuessTheNumber",
    ]  # fmt: skip
    assert env.spec is not None
    copy = gem_core.make(gem_core.EnvSpec.from_json(env.spec.to_json()))
    actions = [r"\boxed{3}", r"\boxed{4}"]
    results = []
    for each in (env, copy):
        each.reset(seed=11)
        results.append([each.step(action) for action in actions])
    assert results[0] == results[1]
    assert results[0][-1][3] is True
    assert results[0][-1][4]["metrics"]["turns"] == 2


def test_state_of_the_whole_stack() -> None:
    env = wrap(ScriptedEnv([0.5] * 6), "time_limit(max_turns=3), concat, episode_statistics")
    env.reset(seed=1)
    env.step("a")
    state = json.loads(json.dumps(env.get_state()))
    rest = [env.step("b"), env.step("c")]
    other = env.spawn()
    other.set_state(state)
    assert [other.step("b"), other.step("c")] == rest
    assert rest[-1][3] is True


def test_async_calls_go_through_the_same_hooks() -> None:
    async def play(env: Env) -> list[Any]:
        return [await env.areset(2), await env.astep("a"), await env.astep("b")]

    stack = "time_limit(max_turns=2), concat_with_action, episode_statistics"
    one, two = wrap(ScriptedEnv(), stack), wrap(ScriptedEnv(), stack)
    assert asyncio.run(play(one)) == [two.reset(2), two.step("a"), two.step("b")]


def _layers(env: Env) -> list[Env]:
    return [env, *_layers(env.env)] if isinstance(env, Wrapper) else [env]
