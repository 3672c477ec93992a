"""Tool calls and steps that wait for a place, with a limit shorter than the queue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import gem_core
from gem_chat import MessagesContext
from gem_chat.tools import Tool, ToolResult, ToolState
from gem_core import Env
from gem_core._core import ResetResult, StepResult
from gem_core._util.places import Places
from gem_core._util.threads import ENV_THREADS, MAX_THREADS, TOOL_THREADS, call_in, set_env_threads
from gem_core.rollout import ChatReply, EnvPool, EpisodeLimits
from gem_envs.tools import Tools
from gem_envs.tools._python import PythonTool

PLACES = Places(4)
LIMIT = 2.0
CALL = "<python>print(1)</python>"
RAN: list[int] = []


def work() -> str:
    with PLACES.held():
        RAN.append(1)
        return "done"


class Worker(Tool):
    """Does something that needs a place."""

    name = "python"
    description = "Works."
    parameters: Mapping[str, Any] = PythonTool.parameters

    async def call(self, arguments: Mapping[str, Any], state: ToolState) -> ToolResult:
        return ToolResult(await call_in(TOOL_THREADS, work))


class Idle(Env):
    def reset(self, seed: int | None = None, *, options: Any = None) -> ResetResult:
        self.begin_episode(seed)
        return "begin", {}

    def step(self, action: str) -> StepResult:
        return "next", 0.0, False, False, {}


class Working(Idle):
    blocking = True

    def step(self, action: str) -> StepResult:
        return work(), 1.0, False, False, {}


class Policy:
    async def reply(self, messages: Any, *, max_tokens: int, request_id: str) -> ChatReply:
        return ChatReply(CALL)


def make_with_tool() -> Env:
    return Tools(Idle(), tools=Worker(), max_tool_uses=None)


gem_core.register("overload:Working-v0", Working)
gem_core.register("overload:Calling-v0", make_with_tool)


def threads_of(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


async def settled(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def usual_threads() -> None:
    set_env_threads(MAX_THREADS)  # other tests in this process may have changed it


async def hold_back(count: int, ended: Callable[[], bool]) -> None:
    """Hold all places until so many calls wait, and then longer than the limit."""
    with PLACES.held(), PLACES.held(), PLACES.held(), PLACES.held():
        await settled(lambda: PLACES.waiting == count)
        await asyncio.sleep(1.5 * LIMIT)
        assert PLACES.waiting == count
        assert not ended()


def test_waiting_for_a_place_is_not_the_time_of_a_tool() -> None:
    async def play() -> None:
        assert TOOL_THREADS.size == MAX_THREADS
        envs = [Tools(Idle(), tools=Worker(), timeout=LIMIT) for _ in range(40)]
        for env in envs:
            env.reset(seed=0)
        RAN.clear()
        steps = [asyncio.ensure_future(env.astep(CALL)) for env in envs]
        await hold_back(MAX_THREADS, lambda: any(step.done() for step in steps))
        results = await asyncio.gather(*steps)
        assert [info["tool_results"][0]["ok"] for *_, info in results] == [True] * 40
        assert len(RAN) == 40
        # The same callers give up while they wait; the next ones find free places at once.
        for _ in range(3):
            steps = [asyncio.ensure_future(env.astep(CALL)) for env in envs]
            with PLACES.held(), PLACES.held(), PLACES.held(), PLACES.held():
                await settled(lambda: PLACES.waiting == MAX_THREADS)
                for step in steps:
                    step.cancel()
                await settled(lambda: PLACES.waiting == 0)
        *_, info = await envs[0].astep(CALL)
        assert info["tool_results"][0]["ok"]
        assert len(RAN) == 41
        assert len(TOOL_THREADS._threads) <= MAX_THREADS
        await settled(lambda: threads_of("gem-tool") <= MAX_THREADS)

    asyncio.run(play())


@pytest.mark.parametrize("env_id", ["overload:Working-v0", "overload:Calling-v0"])
def test_waiting_for_a_place_is_not_the_time_of_a_step(env_id: str) -> None:
    async def play() -> None:
        pool = EnvPool()
        limits = EpisodeLimits(max_turns=2, step_timeout=LIMIT)

        def row(index: int) -> dict[str, Any]:
            return {
                "env_id": env_id,
                "env_kwargs": {},
                "seed": index,
                "index": index,
                "item": None,
            }

        playing = [
            asyncio.ensure_future(
                pool.play(row(index), Policy(), MessagesContext(), limits, log_errors=False)  # type: ignore[arg-type]
            )
            for index in range(40)
        ]
        await hold_back(MAX_THREADS, lambda: any(play.done() for play in playing))
        episodes = await asyncio.gather(*playing)
        assert [episode.stop_reason for episode in episodes] == ["max_turns"] * 40
        assert len(ENV_THREADS._threads) <= MAX_THREADS
        await settled(lambda: threads_of("gem-env") <= MAX_THREADS)
        pool.close()

    asyncio.run(play())


def test_a_session_that_was_given_up_keeps_its_earlier_variables() -> None:
    env = Tools(Idle(), tools=PythonTool(stateful=True, timeout=60, packages=()), timeout=1.0)
    env.reset(seed=0)

    async def call(code: str) -> Any:
        *_, info = await env.astep(f"<python>{code}</python>")
        return info["tool_results"][0]["ok"], env.call_results[0][1]

    async def play() -> None:
        for _ in range(20):  # the first start takes longer on a busy machine
            ok, _ = await call("x = 41")
            if ok:
                break
        began = time.monotonic()
        assert await call("x = 0\nwhile True: pass") == (False, "python did not answer within 1 seconds.")
        for _ in range(20):
            ok, text = await call("x += 1\nprint(x)")
            if ok:
                break
        assert text == "42"
        assert time.monotonic() - began < 50  # the program was stopped

    asyncio.run(play())
    env.close()
