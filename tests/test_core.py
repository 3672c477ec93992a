from __future__ import annotations

import asyncio
import copy
import json
import pickle
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gem_core
from gem_core import Env, Wrapper, render_observation
from gem_core.errors import ConfigError, ResetNeeded
from tests.checker.broken_envs import Sound
from tests.support import ScriptedEnv


class Keyword(Env):
    """Its constructor is called by keyword, with a default omitted."""

    state_fields = ("drawn",)

    def __init__(self, *, size: int, name: str = "x") -> None:
        self.size = size
        self.name = name

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.drawn = [self.random.randrange(100)]
        return str(self.drawn), {}

    def step(self, action: str) -> Any:
        self.require_reset()
        self.drawn.append(self.random.randrange(100))
        return str(self.drawn), 0.0, False, False, {}


class Shout(Wrapper):
    """Uses all three hooks."""

    def on_reset(self, observation: Any, info: Any) -> Any:
        return observation.upper(), info

    def on_action(self, action: str) -> str:
        return action + "!"

    def on_step(self, action: str, result: Any) -> Any:
        observation, reward, *rest = result
        return f"{action} -> {observation}".upper(), reward + 1.0, *rest


# -- seeds and episodes -----------------------------------------------------------------------


def test_same_seed_same_episode_and_none_continues() -> None:
    env = Sound()
    first = [env.reset(seed=4), env.reset(), env.reset()]
    assert [env.reset(seed=4), env.reset(), env.reset()] == first
    assert len({text for text, _ in [env.reset() for _ in range(20)]}) > 1


def test_seed_may_be_positional_and_of_numpy() -> None:
    env = Sound()
    assert env.reset(7) == env.reset(seed=np.int64(7)) == env.reset(seed=7)


@pytest.mark.parametrize("seed", [-1, 1.5, "1"])
def test_bad_seeds_are_rejected(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed="):
        Sound().reset(seed=seed)


def test_instances_without_a_seed_differ() -> None:
    assert Sound().random.random() != Sound().random.random()


def test_steps_need_a_running_episode() -> None:
    env = ScriptedEnv([1.0])
    with pytest.raises(ResetNeeded, match=r"ScriptedEnv.step\(\) .* call reset\(\) first"):
        env.step("x")
    env.reset()
    env.step("x")
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_random_actions_follow_the_seed_and_leave_the_generator_alone() -> None:
    env = Sound()
    drawn = []
    for _ in range(2):
        env.reset(seed=1)
        before = env.random.getstate()
        drawn.append([env.sample_random_action() for _ in range(5)])
        assert env.random.getstate() == before
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 1


needs_mcp = pytest.mark.skipif(not find_spec("mcp"), reason="needs the extra 'mcp'")


@pytest.mark.parametrize(
    "env_id",
    [
        "multi:TicTacToe-v0",
        "math:Arithmetic-v0",
        "game:GuessTheNumber-v0-easy",
        pytest.param(
            "database:Tasks-v0",
            marks=pytest.mark.skipif(not find_spec("mcp"), reason="needs the extra 'mcp'"),
        ),
    ],
)
def test_random_actions_of_episodes_without_a_seed_differ(env_id: str) -> None:
    """Also if an episode draws nothing, so that the generator has not moved."""

    def draws(env: Env) -> list[list[str]]:
        played = []
        for number in range(6):
            env.reset(seed=5 if number == 0 else None)
            played.append([env.sample_random_action() for _ in range(8)])
        return played

    options: dict[str, Any] = {"opponent": "self"} if env_id.startswith("multi:") else {}
    with gem_core.make(env_id, **options) as env:
        first, again = draws(env), draws(env)
    assert len({tuple(actions) for actions in first}) >= 5
    assert first == again


def test_base_class_says_what_is_missing() -> None:
    env = Env()
    with pytest.raises(NotImplementedError):
        env.reset()
    with pytest.raises(NotImplementedError):
        env.step("x")
    with pytest.raises(NotImplementedError, match="Env does not define sample_random_action"):
        env.sample_random_action()
    assert env.oracle_action() is None
    with pytest.raises(TypeError):
        Env(3)  # type: ignore[call-arg]


def test_context_manager_closes() -> None:
    with ScriptedEnv() as env:
        assert env.closed == 0
    assert env.closed == 1
    with pytest.raises(RuntimeError, match="inside"), Wrapper(env):
        raise RuntimeError("inside")
    assert env.closed == 2


# -- state ------------------------------------------------------------------------------------


def test_state_is_json_and_restores_all_generators() -> None:
    env = Sound()
    env.reset(seed=2)
    env.sample_random_action()
    state = json.loads(json.dumps(env.get_state()))
    expected = [env.step("3"), env.sample_random_action(), env.sample_random_action(), env.reset()]
    env.set_state(state)
    assert [env.step("3"), env.sample_random_action(), env.sample_random_action(), env.reset()] == expected


def test_state_keeps_the_second_normal_draw() -> None:
    env = Sound()
    env.random.gauss(0, 1)  # draws two, keeps one
    state = json.loads(json.dumps(env.get_state()))
    expected = env.random.gauss(0, 1)
    env.set_state(state)
    assert env.random.gauss(0, 1) == expected


def test_state_is_a_copy() -> None:
    env = Keyword(size=1)
    env.reset(seed=0)
    state = env.get_state()
    env.step("x")
    assert len(state["fields"]["drawn"]) == 1
    env.set_state(state)
    env.step("x")
    assert len(state["fields"]["drawn"]) == 1


@pytest.mark.parametrize("wrapped", [False, True])
def test_spawn(wrapped: bool) -> None:
    env: Any = Keyword(size=3)
    env.spec = gem_core.EnvSpec("test:Keyword-v0", Keyword, {"size": 3})
    if wrapped:
        env = Wrapper(Shout(env=env))
    env.reset(seed=1)
    sibling = env.spawn()
    assert type(sibling) is type(env)
    assert sibling.unwrapped is not env.unwrapped
    assert (sibling.size, sibling.name, sibling.spec) == (3, "x", env.spec)
    with pytest.raises(ResetNeeded):
        sibling.step("x")
    fork = env.spawn(same_state=True)
    assert fork.step("a") == env.step("a")
    fork.step("b")
    assert len(env.drawn) == 2


@pytest.mark.parametrize(
    "copied", [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy], ids=["pickle", "copy"]
)
def test_pickled_and_copied_envs_continue_alike(copied: Any) -> None:
    env = Shout(Shout(ScriptedEnv([0.0, 1.0, 2.0])))
    env.reset(seed=5)
    env.step("a")
    other = copied(env)
    assert other.unwrapped is not env.unwrapped
    assert other.step("b") == env.step("b")
    assert other.turn == 2
    assert other.spawn().rewards == [0.0, 1.0, 2.0]


# -- wrappers ---------------------------------------------------------------------------------


def test_wrapper_attributes_are_live() -> None:
    inner = ScriptedEnv()
    env = Wrapper(Wrapper(inner))
    inner.turn = 17
    inner.brand_new = "yes"  # type: ignore[attr-defined]
    assert (env.turn, env.brand_new) == (17, "yes")
    inner.blocking = True
    inner.max_return = 3.0
    inner.format_error_reward = -0.5
    inner.oracle_certain = False
    assert (env.blocking, env.max_return, env.format_error_reward, env.oracle_certain) == (
        True,
        3.0,
        -0.5,
        False,
    )
    env.spec = gem_core.spec("game:GuessTheNumber-v0")
    assert inner.spec is env.spec
    assert env.random is inner.random
    assert env.unwrapped is inner
    with pytest.raises(AttributeError, match="no_such_thing"):
        env.no_such_thing  # noqa: B018


def test_wrapper_hooks_serve_sync_and_async_calls() -> None:
    async def play(env: Env) -> Any:
        return [await env.areset(3), await env.astep("hello")]

    one, two = Shout(ScriptedEnv()), Shout(ScriptedEnv())
    results = [one.reset(3), one.step("hello")]
    assert results[0][0].startswith("SEED 3")
    assert results[1][:2] == (results[1][0], 1.0)
    assert results[1][0].startswith("HELLO -> TURN 1")
    assert one.actions == ["hello!"]
    assert asyncio.run(play(two)) == results
    assert two.actions == ["hello!"]


def test_wrapper_that_overrides_only_the_sync_calls_serves_async_too() -> None:
    class Twice(Wrapper):
        def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
            observation, info = self.env.reset(seed, options=options)
            return f"{observation} ready", info

        def step(self, action: str) -> Any:
            self.env.step(action)
            return self.env.step(action)

    async def play() -> Any:
        env = Twice(ScriptedEnv())
        return [(await env.areset(1))[0], (await env.astep("x"))[0], env.turn]

    first, second, turn = asyncio.run(play())
    assert first.endswith(" ready")
    assert second.startswith("turn 2")
    assert turn == 2


def test_wrapper_uses_the_async_calls_of_the_env_inside() -> None:
    class Served(ScriptedEnv):
        async def areset(self, seed: int | None = None, *, options: Any = None) -> Any:
            await asyncio.sleep(0)
            return "from areset", {}

        async def astep(self, action: str) -> Any:
            await asyncio.sleep(0)
            return f"from astep {action}", 0.0, False, False, {}

    async def play() -> Any:
        env = Shout(Served())
        return [(await env.areset())[0], (await env.astep("x"))[0]]

    assert asyncio.run(play()) == ["FROM ARESET", "X -> FROM ASTEP X!"]


def test_blocking_envs_run_in_a_thread_and_others_inline() -> None:
    class Where(ScriptedEnv):
        def step(self, action: str) -> Any:
            self.threads.append(threading.current_thread())
            return super().step(action)

        def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
            self.threads = [threading.current_thread()]
            return super().reset(seed, options=options)

    async def play(env: Env) -> None:
        await env.areset()
        await env.astep("x")

    for blocking in (False, True):
        env = Where(blocking=blocking)
        asyncio.run(play(Wrapper(env)))
        assert [thread is threading.main_thread() for thread in env.threads] == [not blocking] * 2


def test_end_of_the_episode_is_shared_through_wrappers() -> None:
    env = Wrapper(Wrapper(ScriptedEnv()))
    env.reset()
    env.end_episode()
    with pytest.raises(ResetNeeded):
        env.step("x")


def test_repr_names_the_stack() -> None:
    env = gem_core.make("game:GuessTheNumber-v0", wrappers="concat")
    assert repr(env) == "<Concat <GuessTheNumber game:GuessTheNumber-v0>>"


# -- observations -----------------------------------------------------------------------------


@given(st.text(max_size=3), st.text(max_size=3), st.text(max_size=3))
def test_rendered_text_joins_what_there_is(prefix: str, observation: str, suffix: str) -> None:
    info = {"prefix": prefix, "suffix": suffix}
    assert render_observation(observation, info) == "\n".join(p for p in (prefix, observation, suffix) if p)
    assert render_observation(observation, {}) == observation


def test_rendered_parts_keep_their_images() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "u"}}]
    assert render_observation(parts, {}) == parts
    rendered = render_observation(parts, {"prefix": "p", "suffix": "s"})
    assert rendered == [{"type": "text", "text": "p"}, *parts, {"type": "text", "text": "s"}]
    assert len(parts) == 1


# -- imports ----------------------------------------------------------------------------------

_LIGHT = """
import sys
import gem_core
heavy = {"torch", "transformers", "ray", "rich", "matplotlib"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert "asyncio" not in sys.modules  # a third of the import time
for name in heavy:
    sys.modules[name] = None
from gem_lab import check_env
report = check_env(
    "game:GuessTheNumber-v0-easy",
    seeds=(0,),
    rules=["step_results", "async_is_the_same", "states_survive_json"],
    wrappers="time_limit(max_turns=3), concat_with_action(max_history=2), episode_statistics",
)
assert len(report.passed) == 3, report
assert set(gem_core.__all__) <= set(dir(gem_core)) | {"AutoresetMode", "make_vec", "check_env"}
for name in gem_core.__all__:
    getattr(gem_core, name)
"""


def test_import_is_light_and_works_with_numpy_alone(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", _LIGHT], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""


def test_unknown_attribute_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        gem_core.no_such_thing  # noqa: B018


def test_hooks_belong_to_the_object_however_step_is_reached() -> None:
    class Outer(Wrapper):
        def on_step(self, action: str, result: Any) -> Any:
            observation, *rest = result
            return f"outer {observation}", *rest

    class Inner(Outer):
        def on_step(self, action: str, result: Any) -> Any:
            observation, *rest = result
            return f"inner {observation}", *rest

        def step(self, action: str) -> Any:
            return super().step(action)

    class Acting(Outer):
        def on_action(self, action: str) -> str:
            return action.upper()

    class Repeating(Acting):
        def on_action(self, action: str) -> str:
            return super().on_action(action) * 2

    for wrapper, sent, prefix in ((Outer, "a", "outer"), (Inner, "a", "inner"), (Repeating, "AA", "outer")):
        env = wrapper(ScriptedEnv([0.0, 0.0]))
        env.reset(seed=0)
        assert env.step("a")[0].startswith(f"{prefix} turn 1")
        assert asyncio.run(env.astep("a"))[0].startswith(f"{prefix} turn 2")
        assert env.actions == [sent, sent]


class Word(Env):
    """An environment without a reset of its own."""

    state_fields = ("word",)

    def new_task(self) -> None:
        self.word = self.random.choice("abcdefgh") + str(self.random.random())

    def prompt(self) -> str:
        return f"Say {self.word}."

    def step(self, action: str) -> Any:
        self.require_reset()
        self.end_episode()
        return "", float(action == self.word), True, False, {}


def test_an_environment_without_a_reset_of_its_own() -> None:
    env, twin = Word(), Word()
    first = env.reset(seed=3)
    assert twin.reset(3) == first == (f"Say {env.word}.", {})
    assert env.reset()[0] == twin.reset()[0] != first[0]
    saved = env.get_state()
    assert twin.reset(seed=8, options={"state": saved}) == (f"Say {env.word}.", {})
    other = Word()
    other.reset(seed=8)
    assert twin.random.getstate() != other.random.getstate()  # the seed starts after the restored task
    assert twin.random.random() == Random(8).random()
    assert twin.step(env.word)[1] == 1.0
    with pytest.raises(ConfigError, match=r"unknown reset options \['size'\]; Word accepts 'state'"):
        env.reset(options={"size": 1})
    with pytest.raises(ConfigError, match="is not a state of Word"):
        env.reset(options={"state": {"running": True}})
    assert asyncio.run(env.areset(3))[0] == first[0]
