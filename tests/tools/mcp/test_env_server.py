from __future__ import annotations

import asyncio
import contextlib
import json
import sys

import pytest

import gem_core
from gem_core import render_observation
from gem_core.errors import ConfigError, ResetNeeded
from gem_envs.tools import _loop

pytest.importorskip("mcp", reason="needs the extra 'mcp'")

from gem_envs.tools.mcp import close_pools, mcp_tools
from gem_envs.tools.mcp._env_server import ANYONE, ServedEpisodes
from tests.tools.mcp.servers import ENVIRONMENT, free_port, start, stop, wait_for

ID = "game:GuessTheNumber-v0-easy"


def make():
    return gem_core.make(ID)


@pytest.fixture(params=["pipes", "http"])
def tools(request):
    """The tools of a real `gem-core serve mcp`."""
    if request.param == "pipes":
        options = {"command": f"{sys.executable} -m gem_lab serve mcp {ID}", "env": ENVIRONMENT}
        yield {tool.name: tool for tool in mcp_tools(**options)}
        close_pools()
        return
    port = free_port()
    process = start(sys.executable, "-m", "gem_lab", "serve", "mcp", ID, "--port", str(port))
    wait_for(port, process)
    yield {tool.name: tool for tool in mcp_tools(url=f"http://127.0.0.1:{port}/mcp")}
    close_pools()
    stop(process)


def ask(tool, **arguments):
    return _loop.run(tool.call(arguments, tool.begin()))


def test_an_external_agent_plays_the_same_episode(tools):
    assert sorted(tools) == ["reset", "step"]
    env = make()
    expected = render_observation(*env.reset(seed=3))
    told = json.loads(ask(tools["reset"], seed=3).text)
    assert told["observation"] == expected
    for _ in range(20):
        action = env.oracle_action()
        observation, reward, terminated, truncated, info = env.step(action)
        answer = json.loads(ask(tools["step"], episode=told["episode"], action=action).text)
        assert answer.pop("episode") == told["episode"]
        assert answer.pop("observation") == render_observation(observation, info)
        assert (answer["reward"], answer["terminated"], answer["truncated"]) == (
            reward,
            terminated,
            truncated,
        )
        if terminated or truncated:
            assert answer["success"] == info["success"]
            break
    after = ask(tools["step"], episode=told["episode"], action="5")
    assert not after.ok
    assert "there is no episode" in after.text


def test_episodes_run_side_by_side():
    async def play():
        episodes = ServedEpisodes(make)
        one, two = await episodes.reset(1, None), await episodes.reset(2, None)
        assert one["episode"] != two["episode"]
        for answer in (one, two):
            step = await episodes.step(answer["episode"], "no box")
            assert (step["invalid"], step["terminated"]) == ("format", True)
        await episodes.reset(None, None)
        episodes.close()

    asyncio.run(play())


def test_a_client_that_starts_too_many_episodes_loses_its_own():
    async def play():
        episodes = ServedEpisodes(make, most=2)
        names = [(await episodes.reset(n, None, "one"))["episode"] for n in range(2)]
        other = (await episodes.reset(7, None, "two"))["episode"]
        await episodes.step(names[0], r"\boxed{0}")
        await episodes.reset(3, None, "one")
        with pytest.raises(ConfigError, match="there is no episode"):
            await episodes.step(names[1], r"\boxed{1}")
        for name in (names[0], other):
            await episodes.step(name, r"\boxed{0}")
        episodes.close()

    asyncio.run(play())


@pytest.mark.parametrize("owners", [["one"] * 1000, [f"session {n}" for n in range(1000)], [ANYONE] * 1000])
def test_no_client_ends_the_episode_of_another_one(owners):
    async def play():
        episodes = ServedEpisodes(make, most=16, total=64)
        victim = (await episodes.reset(0, None, "victim"))["episode"]
        stateless = (await episodes.reset(0, None, ANYONE))["episode"]
        started = 0
        for owner in owners:
            with contextlib.suppress(ConfigError):
                await episodes.reset(0, None, owner)
                started += 1
        assert started >= 15
        assert len(episodes._running) <= 64
        for name in (victim, stateless):
            await episodes.step(name, r"\boxed{0}")
        episodes.close()

    asyncio.run(play())


def test_episodes_that_nobody_plays_make_room():
    async def play():
        episodes = ServedEpisodes(make, most=4, total=4, idle=0.01)
        for _ in range(3):
            for _ in range(4):
                await episodes.reset(0, None, ANYONE)
            await asyncio.sleep(0.02)
        assert 0 < len(episodes._running) <= 4  # on a busy machine, a reset takes longer than `idle`
        episodes.close()

    asyncio.run(play())


def test_a_rejected_reset_leaves_nothing():
    async def play():
        episodes = ServedEpisodes(make)
        with pytest.raises(ConfigError, match="of at least 0"):
            await episodes.reset(-1, None)
        answer = await episodes.reset(0, None)
        first = episodes._running[answer["episode"]].env
        episodes.close()
        return first

    with pytest.raises(ResetNeeded):
        gem_core.make(ID).step("x")
    asyncio.run(play())
