"""The contract of `VectorEnv`, on the inline backend; test_backends.py compares the others with it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from gem_core import EnvSpec, make_vec
from gem_core.errors import CallOrderError, ConfigError, ResetNeeded, UnknownEnv
from gem_core.vector import AutoresetMode, VectorEnv
from tests.support import ScriptedEnv

SCRIPTED = EnvSpec("test:Scripted-v0", "tests.support:ScriptedEnv")
DISABLED, NEXT_STEP, SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP


def scripted(num_envs: int = 3, **kwargs: Any) -> VectorEnv:
    return make_vec(SCRIPTED, num_envs, **kwargs)


def test_lockstep_returns_lists_and_typed_arrays() -> None:
    with scripted(rewards=[0.5, 1.0]) as envs:
        observations, infos = envs.reset(seed=7)
        assert [o.split()[1] for o in observations] == ["7", "8", "9"]
        assert infos == [{}, {}, {}]
        step = envs.step(["a", "b", "c"])
    assert (step.rewards.dtype, step.rewards.shape) == (np.float64, (3,))
    assert (step.terminated.dtype, step.truncated.dtype) == (np.bool_, np.bool_)
    assert step.rewards.tolist() == [0.5, 0.5, 0.5]
    assert not step.terminated.any()
    assert not step.truncated.any()
    assert isinstance(step.observations, list)
    assert step.infos == [{"invalid": None}] * 3


def test_each_env_plays_what_it_plays_alone() -> None:
    alone = ScriptedEnv()
    expected = [alone.reset(12)[0], alone.step("x")[0]]
    with scripted() as envs:
        first, _ = envs.reset(seed=10)
        assert [first[2], envs.step(["x"] * 3).observations[2]] == expected


def test_same_step_keeps_the_last_observation_and_info() -> None:
    alone = ScriptedEnv([1.0])
    alone.reset(0)
    last, _, _, _, last_info = alone.step("a")
    new, _ = alone.reset()  # the env's own stream continues
    with scripted(1, rewards=[1.0]) as envs:
        envs.reset(seed=0)
        step = envs.step(["a"])
    assert step.terminated.tolist() == [True]
    assert step.observations == [new]
    assert step.infos == [{"final_obs": last, "final_info": last_info}]
    assert last_info["success"] is True


def test_next_step_resets_in_the_step_after_the_end() -> None:
    alone = ScriptedEnv([1.0])
    alone.reset(0)
    last = alone.step("a")[0]
    new = alone.reset()[0]
    with scripted(1, rewards=[1.0], autoreset=NEXT_STEP) as envs:
        envs.reset(seed=0)
        end = envs.step(["a"])
        after = envs.step([None])
        again = envs.step(["c"])
    assert (end.observations, end.terminated.tolist()) == ([last], [True])
    assert "final_obs" not in end.infos[0]
    assert (after.observations, after.rewards.tolist()) == ([new], [0.0])
    assert not after.terminated.any()
    assert not after.truncated.any()
    assert again.rewards.tolist() == [1.0]


def test_disabled_waits_for_a_reset_of_that_env() -> None:
    envs = make_vec(SCRIPTED, vec_kwargs=[{"rewards": [1.0]}, {"rewards": [1.0, 2.0]}], autoreset=DISABLED)
    with envs:
        envs.reset(seed=0)
        step = envs.step(["a", "b"])
        assert step.terminated.tolist() == [True, False]
        with pytest.raises(ResetNeeded, match=r"\[0\] ended"):
            envs.step(["a", "b"])
        with pytest.raises(ResetNeeded, match=r"\[0\] ended"):
            envs.send({0: "a"})
        observations, infos = envs.reset(seed=5, mask=[True, False])
        assert observations[0].startswith("seed 5 ")
        assert observations[1] == step.observations[1]
        assert infos == [{}, {}]
        assert envs.step(["a", "b"]).rewards.tolist() == [1.0, 2.0]


def test_send_and_recv_serve_each_env_at_its_own_pace() -> None:
    with scripted() as envs:
        envs.reset(seed=0)
        envs.send({2: "a"})
        assert list(envs.recv()) == [2]
        envs.send({0: "a", 2: "b"})
        got = envs.recv(min_ready=2)
        assert {i: result[1] for i, result in got.items()} == {0: 0.0, 2: 0.5}
        envs.send({2: "c"})
        (observation, reward, terminated, truncated, info) = envs.recv(min_ready=5)[2]
        assert (reward, terminated, truncated) == (1.0, True, False)
        assert info["final_info"]["success"] is True
        assert envs.step(["x", "x", "x"]).rewards.tolist() == [0.5, 0.0, 0.0]
        assert observation.startswith("seed None")


def test_recv_without_time_takes_what_is_there() -> None:
    with scripted() as envs:
        envs.reset(seed=0)
        envs.send({1: "a"})
        assert list(envs.recv(timeout=0)) == [1]


def test_wrong_order_of_send_and_recv_is_named() -> None:
    with scripted() as envs:
        with pytest.raises(ResetNeeded, match="call reset"):
            envs.send({0: "a"})
        envs.reset()
        with pytest.raises(CallOrderError, match="without a pending step"):
            envs.recv()
        envs.send({0: "a"})
        with pytest.raises(CallOrderError, match=r"\[0\]"):
            envs.send({0: "a"})
        with pytest.raises(CallOrderError, match=r"\[0\]"):
            envs.step(["a"] * 3)
        with pytest.raises(CallOrderError, match=r"\[0\]"):
            envs.reset()
        envs.reset(mask=[False, True, True])
        assert list(envs.recv()) == [0]


def test_next_step_rejects_send() -> None:
    with scripted(autoreset=NEXT_STEP) as envs:
        envs.reset()
        with pytest.raises(ConfigError, match="NEXT_STEP"):
            envs.send({0: "a"})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ("abc", "one string"),
        (["a", "b"], "got 2"),
        (["a", "b", 3], "environment 2"),
        (["a", None, "c"], "None"),
    ],
)
def test_bad_actions_are_type_errors(actions: Any, message: str) -> None:
    with scripted() as envs:
        envs.reset()
        with pytest.raises(TypeError, match=message):
            envs.step(actions)


@pytest.mark.parametrize(
    ("actions", "error"), [({3: "a"}, IndexError), ({-1: "a"}, IndexError), ({0: 1}, TypeError)]
)
def test_bad_sends_are_rejected_whole(actions: Any, error: type[Exception]) -> None:
    with scripted() as envs:
        envs.reset()
        with pytest.raises(error):
            envs.send({1: "a", **actions})
        envs.send({1: "a"})  # not busy: the rejected call started nothing


def test_a_mapping_steps_only_these() -> None:
    with scripted(rewards=[0.5, 1.0], autoreset=DISABLED) as envs:
        envs.reset(seed=0)
        step = envs.step({2: "a", 0: "b"})
        assert step.observations[0] != step.observations[1]
        step = envs.step({2: "c", 1: "d"})
        assert (step.rewards.tolist(), step.terminated.tolist()) == ([1.0, 0.5], [True, False])
        with pytest.raises(ResetNeeded, match=r"\[2\] ended"):
            envs.step({2: "e", 1: "f"})
        assert envs.step({1: "g", 0: "h"}).terminated.tolist() == [True, True]
        with pytest.raises(IndexError):
            envs.step({3: "a"})
        assert [len(column) for column in envs.step({})] == [0] * 5
    with scripted() as envs:
        envs.reset()
        with pytest.raises(TypeError, match="environment 1"):
            envs.step({1: None})


def test_step_before_reset() -> None:
    with scripted() as envs, pytest.raises(ResetNeeded, match="has not been reset"):
        envs.step(["a"] * 3)
    with scripted() as envs, pytest.raises(ResetNeeded, match="has not been reset"):
        envs.reset(mask=[True, False, False])


def test_the_first_reset_uses_the_seed_of_make_vec() -> None:
    with scripted(seed=3) as envs, scripted() as other:
        assert envs.reset() == other.reset(seed=3)
        assert envs.reset() == other.reset()


def test_the_first_reset_uses_a_seed_in_vec_kwargs() -> None:
    with make_vec([SCRIPTED] * 3, vec_kwargs=[{"seed": 9}, {}, {"seed": 2}], seed=5, wrappers=None) as envs:
        assert [o.split()[1] for o in envs.reset()[0]] == ["9", "6", "2"]
        assert [o.split()[1] for o in envs.reset()[0]] == ["None"] * 3


@pytest.mark.parametrize("seed", [-1, 1.5, "a", "abc", [0, -1, 2], [0, "1", 2], np.array([0.0, 1.0, 2.0])])
def test_an_invalid_seed_is_rejected_and_not_an_environment_failure(seed: Any) -> None:
    message = "seed=.*: expected a whole number of at least 0"
    with scripted(seed=seed) as envs:
        with pytest.raises(ConfigError, match=message):
            envs.reset(seed=seed)
        with pytest.raises(ConfigError, match=message):
            envs.reset()
    kwargs: list[dict[str, Any]] = [{}, {"seed": -2}]
    with make_vec([SCRIPTED] * 2, vec_kwargs=kwargs) as envs, pytest.raises(ConfigError, match="seed=-2"):
        envs.reset()


def test_seeds_and_options_per_env() -> None:
    with scripted() as envs:
        observations, _ = envs.reset(seed=[5, None, 5], options=[None, {}, None])
        assert observations[0] == observations[2]
        with pytest.raises(ConfigError, match="seed: expected one or 3"):
            envs.reset(seed=[1])
        with pytest.raises(ConfigError, match="mask: expected 3 bools"):
            envs.reset(mask=[0, 1, 2])
        assert envs.reset(seed=np.array([5, 6, 7])) == envs.reset(seed=np.int64(5))  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_options_that_an_env_rejects_are_the_callers_error(backend: Any) -> None:
    with make_vec("game:GuessTheNumber-v0-easy", 2, backend=backend) as envs:
        envs.reset(seed=0)
        before = envs.step([r"\boxed{1}"] * 2).infos
        with pytest.raises(ConfigError, match=r"environment 1: .*levle"):
            envs.reset(options=[None, {"levle": 3}])  # type: ignore[typeddict-unknown-key]
        assert all("error" not in info for info in before + envs.step([r"\boxed{2}"] * 2).infos)


def test_closed_env_says_so_and_closes_once() -> None:
    envs = scripted()
    envs.reset()
    envs.close()
    envs.close()
    for call in (envs.reset, lambda: envs.step(["a"] * 3), lambda: envs.send({0: "a"}), envs.recv):
        with pytest.raises(CallOrderError, match="closed"):
            call()


def test_async_forms_give_the_same() -> None:
    async def play() -> list[Any]:
        with scripted() as envs:
            seen: list[Any] = [await envs.areset(seed=1)]
            seen.append((await envs.astep(["a"] * 3)).observations)
            envs.send({1: "b"})
            seen.append(await envs.arecv())
            with pytest.raises(CallOrderError):
                await envs.arecv()
            return seen

    with scripted() as envs:
        expected: list[Any] = [envs.reset(seed=1), envs.step(["a"] * 3).observations]
        envs.send({1: "b"})
        expected.append(envs.recv())
    assert asyncio.run(play()) == expected


# -- make_vec ---------------------------------------------------------------------------------


def test_ids_and_kwargs_per_env() -> None:
    other = EnvSpec("test:Other-v0", "tests.support:ScriptedEnv", {"rewards": [9.0]})
    with make_vec([SCRIPTED, other], vec_kwargs=[{"rewards": [1.0]}, {}], truncate=True) as envs:
        assert [spec.id for spec in envs.specs] == ["test:Scripted-v0", "test:Other-v0"]
        envs.reset()
        step = envs.step(["a", "b"])
    assert step.rewards.tolist() == [1.0, 9.0]
    assert step.truncated.tolist() == [True, True]


def test_one_id_is_one_env_and_a_str_is_one_id() -> None:
    with make_vec(SCRIPTED) as envs:
        assert len(envs) == 1
    with pytest.raises(UnknownEnv, match="game:Nothing"):
        make_vec("game:Nothing-v0", 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_envs": 3, "id_or_ids": [SCRIPTED]}, "num_envs=3: expected None or 1"),
        ({"num_envs": 0}, "num_envs=0: expected a whole number of at least 1"),
        ({"id_or_ids": []}, "at least one"),
        ({"num_envs": 2, "vec_kwargs": [{}]}, "vec_kwargs of length 1: expected 2"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 1.0, "backend": "inline"}, "inline"),
        ({"max_workers": 0}, "max_workers"),
        ({"backend": "threads"}, "'threads'"),
    ],
)
def test_options_that_cannot_be_honored(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vec(**{"id_or_ids": SCRIPTED, **given})


def test_bad_constructor_arguments_raise_here_and_close_what_was_built() -> None:
    built: list[ScriptedEnv] = []

    def build(fail: bool) -> ScriptedEnv:
        if fail:
            raise ValueError("no such board")
        built.append(ScriptedEnv())
        return built[-1]

    with pytest.raises(ValueError, match="no such board"):
        make_vec(EnvSpec("test:Built-v0", build), vec_kwargs=[{"fail": False}, {"fail": True}])
    assert [env.closed for env in built] == [1]
    with pytest.raises(TypeError, match="reward_list"):
        scripted(reward_list=[1.0])
