"""An environment is closed once, never beside a call, and also if an argument turns out to be wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gem_chat import AppendContext, EnvPlayer, MessagesContext
from gem_chat.tools import Tool, ToolResult
from gem_core import Env, Wrapper, register
from gem_core._util.threads import TOOL_THREADS, call_in, in_thread
from gem_core.errors import ConfigError
from gem_core.rollout import EnvPool, EpisodeLimits, run_agents, run_episode
from gem_core.rollout._calls import start_closing
from gem_core.wrappers import TimeLimit
from gem_envs.tools import Tools
from tests.cancels.witness import Awaiting, Blocking, Witness
from tests.envs.multiagent.test_multi_agent_env import Counting
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.support import recorded
from tests.support.recorded import Record

CONTEXT = AppendContext(CharTokenizer())
MESSAGES = MessagesContext()
PYTHON = 'x<tool_call>{"name": "slow", "arguments": {}}</tool_call>'


def says(text: str) -> ScriptedPolicy:
    tokenizer = CharTokenizer()
    return ScriptedPolicy([[*tokenizer.encode(text), tokenizer.eos_token_id]])


# -- wrong arguments -----------------------------------------------------------------------------


class Pictures(Witness):
    shows_images = True


class Pair(Counting):
    """Two agents; counts how often it was closed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Mute:
    """A policy that can neither generate nor reply."""


ONE_AGENT: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "several agents": (Pair, {}),
    "images, but a context of text": (Pictures, {}),
    "no limit of tokens": (Witness, {"limits": EpisodeLimits(max_tokens_per_turn=None)}),
    "limits out of range": (Witness, {"limits": EpisodeLimits(max_turns=0)}),
    "limits of another type": (Witness, {"limits": EpisodeLimits(step_timeout="soon")}),  # type: ignore[arg-type]
    "max_response_tokens out of range": (Witness, {"max_response_tokens": 0}),
    "tokens of messages": (Witness, {"context": MESSAGES, "max_total_tokens": 9}),
    "a policy without generate": (Witness, {"policy": Mute()}),
    "a policy without reply": (Witness, {"context": MESSAGES}),
    "a context without a mode": (Witness, {"context": object()}),
    "an oracle for tokens": (Witness, {"policy": EnvPlayer("oracle")}),
}


@pytest.mark.parametrize("case", ONE_AGENT)
def test_run_episode_closes_the_environment_if_an_argument_is_wrong(case: str) -> None:
    build, arguments = ONE_AGENT[case]
    env = build()
    values = {"policy": says("x"), "context": CONTEXT, **arguments}
    with pytest.raises((ConfigError, TypeError, AttributeError)):
        asyncio.run(run_episode(env, **values))
    assert env.closed == 1


SEVERAL: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "one agent": (Witness, {}),
    "no policy for an agent": (Pair, {"policies": {"a": says("x")}}),
    "a policy for a stranger": (Pair, {"policies": {"a": says("x"), "b": says("x"), "stranger": says("x")}}),
    "no context for an agent": (Pair, {"contexts": {"a": CONTEXT}}),
    "limits out of range": (Pair, {"limits": EpisodeLimits(max_turns=0)}),
    "a policy without generate": (Pair, {"policies": Mute()}),
    "wrappers that do not exist": (Pair, {"wrappers": "no_such_wrapper"}),
    "an unknown argument": (Pair, {"max_respnse_tokens": 3}),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_run_agents_closes_the_environment_if_an_argument_is_wrong(case: str) -> None:
    build, arguments = SEVERAL[case]
    env = build()
    values = {"policies": says("x"), "contexts": CONTEXT, **arguments}
    with pytest.raises((ConfigError, TypeError, LookupError)):
        asyncio.run(run_agents(env, **values))
    assert env.closed == 1


MADE: list[Any] = []


def made(kind: type) -> Callable[..., Env]:
    def build(**kwargs: Any) -> Env:
        MADE.append(kind(**kwargs))
        return MADE[-1]

    return build


register("closing:Pair-v0", made(Pair))
register("closing:Pictures-v0", made(Pictures))
register("closing:Witness-v0", made(Witness))

OF_A_POOL: dict[str, tuple[str, dict[str, Any]]] = {
    "several agents": ("closing:Pair-v0", {}),
    "images, but a context of text": ("closing:Pictures-v0", {}),
    "no limit of tokens": ("closing:Witness-v0", {"limits": EpisodeLimits(max_tokens_per_turn=None)}),
    "a policy without generate": ("closing:Witness-v0", {"policy": Mute()}),
    "an unknown argument": ("closing:Witness-v0", {"max_respnse_tokens": 3}),
}


@pytest.mark.parametrize("case", OF_A_POOL)
def test_a_pool_loses_no_environment_if_an_argument_is_wrong(case: str) -> None:
    env_id, arguments = OF_A_POOL[case]
    task: Any = {"env_id": env_id, "env_kwargs": {}, "seed": 0, "index": 0, "item": None}
    MADE.clear()
    pool = EnvPool(max_envs=2)

    async def main() -> None:
        for _ in range(3):  # more often than the pool has places
            with pytest.raises((ConfigError, TypeError)):
                await pool.play(task, **{"policy": says("x"), "context": CONTEXT, **arguments})

    asyncio.run(asyncio.wait_for(main(), 30))
    pool.close()
    assert len(MADE) == 3
    assert [env.closed for env in MADE] == [1, 1, 1]


# -- never beside a call -------------------------------------------------------------------------


class OwnStep(Wrapper):
    """Overrides `step` only, so that its async form runs in a thread."""

    def step(self, action: str) -> Any:
        return self.env.step(action)


class Hooks(Wrapper):
    def on_step(self, action: str, result: Any) -> Any:
        return result


class OwnAsync(Witness):
    """Runs its step in a thread, from a coroutine of its own."""

    async def astep(self, action: str) -> Any:
        return await in_thread(self.step, action)


class Children(Witness):
    """Runs its step in a thread, from tasks of its own."""

    async def astep(self, action: str) -> Any:
        return (await asyncio.gather(asyncio.ensure_future(in_thread(self.step, action))))[0]


class Slow(Tool):
    """Works in a thread, inside the environment of the episode."""

    name, description = "slow", "Waits."

    async def call(self, arguments: Mapping[str, Any], state: Any) -> ToolResult:
        await call_in(TOOL_THREADS, lambda: state.env.step(""))
        return ToolResult("done")


FORMS: dict[str, tuple[type[Witness], Callable[[Env], Env], str]] = {
    "plain": (Blocking, lambda env: env, "x"),
    "tools": (Blocking, lambda env: Tools(env, tools=Slow()), "x"),
    "tools twice": (Blocking, lambda env: Tools(Tools(env, tools=Slow()), tools="python"), "x"),
    "hooks around tools": (
        Blocking,
        lambda env: Hooks(TimeLimit(Tools(env, tools=Slow()), max_turns=5)),
        "x",
    ),
    "a step of a wrapper": (Blocking, OwnStep, "x"),
    "a step of a wrapper around tools": (Blocking, lambda env: OwnStep(Tools(env, tools=Slow())), "x"),
    "a coroutine of its own": (OwnAsync, lambda env: env, "x"),
    "tasks of its own": (Children, Hooks, "x"),
    "a tool in a thread": (Awaiting, lambda env: Tools(env, tools=Slow(), format="hermes"), PYTHON),
}


@pytest.mark.parametrize("end", ["overdue", "canceled", "canceled when overdue"])
@pytest.mark.parametrize("form", FORMS)
def test_close_waits_for_the_call_whichever_way_it_was_made(form: str, end: str) -> None:
    kind, wrap, text = FORMS[form]
    gate = threading.Event()
    env = kind(gate=gate)
    limits = EpisodeLimits(step_timeout=None if end == "canceled" else 0.05)

    async def main() -> None:
        play = asyncio.ensure_future(run_episode(wrap(env), says(text), CONTEXT, limits))
        assert await asyncio.to_thread(env.entered.wait, 30)
        if end != "overdue":
            await asyncio.sleep(0 if end == "canceled" else 0.05)
            play.cancel()
        await asyncio.wait({play}, timeout=30)
        assert play.done()
        await asyncio.sleep(0.02)
        assert env.closed == 0

    asyncio.run(main())
    gate.set()
    assert env.was_closed.wait(30)
    assert (env.closed, env.beside) == (1, 0)


class Table(Counting):
    """A blocking environment of several agents, whose step waits; `witness` records what happens."""

    blocking = True

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self.witness = Witness(gate=gate)

    def _process_actions(self, actions: Any) -> Any:
        self.witness.step("")
        return super()._process_actions(actions)

    def close(self) -> None:
        self.witness.close()


@pytest.mark.parametrize("end", ["overdue", "canceled"])
def test_close_waits_for_the_call_of_several_agents(end: str) -> None:
    gate = threading.Event()
    env = Table(gate)
    limits = EpisodeLimits(step_timeout=0.05 if end == "overdue" else None)

    async def main() -> None:
        play = asyncio.ensure_future(run_agents(env, says("x"), CONTEXT, limits))
        assert await asyncio.to_thread(env.witness.entered.wait, 30)
        if end == "canceled":
            play.cancel()
        await asyncio.wait({play}, timeout=30)
        assert play.done()

    asyncio.run(main())
    assert env.witness.closed == 0
    gate.set()
    assert env.witness.was_closed.wait(30)
    assert (env.witness.closed, env.witness.beside) == (1, 0)


def test_wrappers_around_the_view_of_an_agent_are_closed_with_its_episode() -> None:
    closed: list[str] = []

    class Notes(Wrapper):
        def close(self) -> None:
            closed.append(threading.current_thread().name)
            super().close()

    env = Pair()
    asyncio.run(run_agents(env, says("x"), CONTEXT, EpisodeLimits(max_turns=2), wrappers=Notes))
    assert closed == ["gem-env-close"] * len(env.possible_agents)
    assert env.closed == 0


def test_a_pool_closes_an_environment_whose_wrappers_cannot_be_built() -> None:
    def broken(env: Env) -> Env:
        raise RuntimeError("no server")

    MADE.clear()
    pool = EnvPool(broken)
    task: Any = {"env_id": "closing:Witness-v0", "env_kwargs": {}, "seed": 0, "index": 0, "item": None}
    episode = asyncio.run(pool.play(task, says("x"), CONTEXT, log_errors=False))
    assert episode.stop_reason == "env_error"
    assert [env.closed for env in MADE] == [1]


@pytest.mark.parametrize("already_built", [0, 1])
def test_a_pool_closes_what_canceled_episodes_were_building(
    already_built: int, tmp_path: Path, own_registry: None
) -> None:
    """Cancel three episodes while the first environment, or both others, are being built."""
    record = Record(tmp_path / "record")
    recorded.register()
    kwargs = {"path": str(tmp_path / "record"), "build": 1.0, "close": 0.2}
    tasks = [{"env_id": recorded.IDS[1], "env_kwargs": kwargs, "seed": seed} for seed in range(3)]
    pool = EnvPool()

    async def cancel() -> None:
        playing = [asyncio.ensure_future(pool.play(task, says(""), CONTEXT)) for task in tasks]
        while record.count("built") < already_built:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        for episode in playing:
            episode.cancel()
        await asyncio.gather(*playing, return_exceptions=True)

    asyncio.run(cancel())
    assert record.count("built") == already_built
    pool.close()
    assert record.count("built") == (3 if already_built else 1)
    assert record.open() == set()


def test_an_environment_is_closed_where_no_further_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()

    class Closed(Env):
        def close(self) -> None:
            closed.set()

    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "gem-env-close":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    start_closing(Closed()).result(30)
    assert closed.is_set()
