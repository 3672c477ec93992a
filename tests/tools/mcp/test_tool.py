from __future__ import annotations

import asyncio
import concurrent.futures
import json
import multiprocessing
import os
import signal
import threading

import pytest

import gem_core
from gem_chat.tools import make_tools
from gem_core.errors import ConfigError, DataError, ServiceError
from gem_envs.tools import _loop

pytest.importorskip("mcp", reason="needs the extra 'mcp'")

from gem_envs.tools.mcp import close_pools, mcp_tools
from gem_envs.tools.mcp._config import ServerConfig, read_servers, server_config
from gem_envs.tools.mcp._pool import pool_of
from gem_envs.tools.mcp._tool import McpTool, tool_name
from tests.tools.mcp.servers import (
    ENVIRONMENT,
    EXAMPLE,
    CountingProxy,
    example_over_http,
    free_port,
    start,
    stop,
)


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_pools()


@pytest.fixture(scope="module")
def port():
    number = free_port()
    with example_over_http(number):
        yield number


@pytest.fixture(params=["pipes", "http"])
def where(request):
    """Arguments that reach the example server."""
    if request.param == "pipes":
        return {"command": EXAMPLE, "env": ENVIRONMENT}
    return {"url": f"http://127.0.0.1:{request.getfixturevalue('port')}/mcp"}


def tools_by_name(**options):
    return {tool.name: tool for tool in mcp_tools(**options)}


def call(tool, state=None, **arguments):
    return _loop.run(tool.call(arguments, tool.begin() if state is None else state))


def test_the_tools_of_a_server_are_tools_of_ours(where):
    tools = tools_by_name(**where)
    assert sorted(tools) == ["calculate", "get_value", "list_keys", "set_value", "time", "wait"]
    assert tools["calculate"].description.startswith("The value of an expression")
    assert tools["calculate"].parameters["properties"]["expression"]["type"] == "string"
    assert tools["calculate"].parameters["required"] == ["expression"]
    assert call(tools["calculate"], expression="2 * (3 + 4)").text == "14"
    assert call(tools["time"]).text.endswith("+00:00")


def test_an_error_of_the_server_is_a_result(where):
    tools = tools_by_name(**where)
    for arguments in ({"expression": "2 ** 9 ** 9"}, {"expression": "1 / 0"}, {"expression": 3.5}, {}):
        result = _loop.run(tools["calculate"].call(arguments, tools["calculate"].begin()))
        assert not result.ok, arguments
        assert "calculate" in result.text
    assert "cannot calculate '1 / 0': division by zero" in call(tools["calculate"], expression="1 / 0").text
    assert not call(McpTool(tools["time"].config, "nothing", "nothing", "d", {"type": "object"})).ok


def test_a_shared_session_is_seen_by_all_episodes(where):
    tools = tools_by_name(**where)
    call(tools["set_value"], key="shared", value="1")
    assert call(tools["get_value"], key="shared").text == "1"
    assert pool_of(tools["time"].config).opened == 1


def test_each_episode_has_its_own_session_on_request(where):
    tools = tools_by_name(sessions="episode", **where)
    listed = pool_of(tools["time"].config).opened
    states = [tools["time"].begin() for _ in range(3)]
    for index, state in enumerate(states):
        assert call(tools["set_value"], state, key="a", value=str(index)).ok
    assert [call(tools["get_value"], state, key="a").text for state in states] == ["0", "1", "2"]
    before = pool_of(tools["time"].config).opened
    assert before == listed + 2, "the first episode takes the session that listed the tools"
    for state in states:
        tools["time"].end(state)
    fresh = tools["time"].begin()
    assert call(tools["list_keys"], fresh).text == "There are no keys."
    assert pool_of(tools["time"].config).opened == before + 1
    tools["time"].end(fresh)


def test_tools_of_one_server_share_the_session_of_an_episode_in_an_environment():
    wrapper = (
        f"tools(tools=\"mcp(command='{EXAMPLE}', env={ENVIRONMENT!r}, sessions='episode')\", format='hermes')"
    )
    with gem_core.make("game:GuessTheNumber-v0-easy", wrappers=wrapper) as env:
        for _ in range(2):
            observation, _ = env.reset(seed=0)
            assert "set_value" in observation
            seen = [
                env.step(f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>')[0]
                for name, arguments in (
                    ("list_keys", "{}"),
                    ("set_value", '{"key": "k", "value": "v"}'),
                    ("get_value", '{"key": "k"}'),
                )
            ]
            assert "There are no keys." in seen[0]
            assert "v" in seen[2]
            assert "error" not in seen[2].lower()


def test_sessions_of_episodes_are_bounded_and_wait_for_each_other():
    options = {"command": EXAMPLE, "env": ENVIRONMENT, "sessions": "episode", "max_sessions": 1}
    tools = tools_by_name(**options, connect_timeout=20.0)
    first, second = tools["time"].begin(), tools["time"].begin()
    assert call(tools["time"], first).ok
    waiting = _loop.submit(tools["time"].call({}, second))
    with pytest.raises(concurrent.futures.TimeoutError):
        waiting.result(0.3)
    tools["time"].end(first)
    assert waiting.result(30).ok
    tools["time"].end(second)


def test_a_call_from_any_loop_and_thread_uses_the_same_session(port):
    tools = tools_by_name(url=f"http://127.0.0.1:{port}/mcp", name="loops")
    results = []

    def play():
        results.append(asyncio.run(tools["calculate"].call({"expression": "1 + 1"}, tools["time"].begin())))

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.text for result in results] == ["2"] * 4
    assert pool_of(tools["time"].config).opened == 1


def use_in_a_child(tools, results):
    results.put(call(tools["calculate"], expression="5").text)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_has_sessions_of_its_own(where):
    tools = tools_by_name(**where)
    assert call(tools["calculate"], expression="4").text == "4"
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=use_in_a_child, args=(tools, results))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert results.get() == "5"
    assert call(tools["calculate"], expression="6").text == "6"
    assert pool_of(tools["time"].config).opened == 1


def test_128_episodes_share_the_connections_of_one_server(port):
    with CountingProxy(port) as proxy:
        tools = tools_by_name(url=f"http://127.0.0.1:{proxy.port}/mcp", concurrency=8)

        async def episode(number):
            state = tools["calculate"].begin()
            texts = [
                (await tools["calculate"].call({"expression": f"{number} + {turn}"}, state)).text
                for turn in range(2)
            ]
            return texts == [str(number + turn) for turn in range(2)]

        async def all_episodes():
            return await asyncio.gather(*map(episode, range(128)))

        assert all(asyncio.run(all_episodes()))
        assert pool_of(tools["time"].config).opened == 1
        assert proxy.connections <= 2 * 8  # for 256 calls


def test_512_episodes_share_one_process(port):
    tools = tools_by_name(command=EXAMPLE, env=ENVIRONMENT, concurrency=512, name="many")

    async def all_episodes():
        calls = (tools["wait"].call({"seconds": 0}, tools["wait"].begin()) for _ in range(512))
        return await asyncio.gather(*calls)

    assert len({result.text for result in asyncio.run(all_episodes())}) == 1
    assert pool_of(tools["time"].config).opened == 1


async def sent(tool, count):
    """Wait until the shared session of a tool has sent so many calls."""
    while pool_of(tool.config)._shared._calls_in_progress < count:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)  # it writes them at once


def test_a_killed_process_costs_the_calls_in_flight_and_is_started_again():
    tools = tools_by_name(command=EXAMPLE, env=ENVIRONMENT, name="killed")
    pid = int(call(tools["wait"], seconds=0).text.split()[-1].strip("."))

    async def mid_run():
        state = tools["wait"].begin()
        in_flight = [asyncio.ensure_future(tools["wait"].call({"seconds": 50}, state)) for _ in range(3)]
        await sent(tools["wait"], 3)
        os.kill(pid, signal.SIGKILL)
        lost = await asyncio.gather(*in_flight)
        after = [await tools["calculate"].call({"expression": str(n)}, state) for n in range(5)]
        return lost, after

    lost, after = asyncio.run(asyncio.wait_for(mid_run(), 40))
    assert [result.ok for result in lost] == [False] * 3
    assert "the server disconnected during the call" in lost[0].text
    assert [result.text for result in after] == ["0", "1", "2", "3", "4"]


def test_a_killed_http_server_costs_the_calls_in_flight():
    number = free_port()
    with example_over_http(number) as process:
        tools = tools_by_name(url=f"http://127.0.0.1:{number}/mcp", name="killed")

        async def mid_run():
            state = tools["wait"].begin()
            in_flight = [asyncio.ensure_future(tools["wait"].call({"seconds": 50}, state)) for _ in range(3)]
            await sent(tools["wait"], 3)
            stop(process)
            lost = await asyncio.gather(*in_flight)
            calls = (tools["calculate"].call({"expression": str(n)}, state) for n in range(5))
            while_down = asyncio.gather(*calls)
            await asyncio.sleep(0.5)
            assert not while_down.done()
            again = start(*EXAMPLE.split(), "--port", str(number))
            try:
                return lost, await while_down, await tools["calculate"].call({"expression": "9"}, state)
            finally:
                stop(again)

        lost, while_down, after = asyncio.run(asyncio.wait_for(mid_run(), 60))
    assert [result.ok for result in lost] == [False] * 3
    assert "the server disconnected during the call" in lost[0].text
    assert [result.text for result in (*while_down, after)] == ["0", "1", "2", "3", "4", "9"]


def test_only_the_slow_call_is_abandoned():
    tools = tools_by_name(command=EXAMPLE, env=ENVIRONMENT, timeout=0.5, name="slow")
    assert call(tools["wait"], seconds=30).text == "wait failed: no answer within 0.5 seconds"
    assert call(tools["calculate"], expression="1").text == "1"
    assert pool_of(tools["time"].config).opened == 1


def test_a_canceled_call_leaves_the_session_as_it_was():
    tools = tools_by_name(command=EXAMPLE, env=ENVIRONMENT)

    async def cancel():
        going = asyncio.ensure_future(tools["wait"].call({"seconds": 30}, tools["wait"].begin()))
        await asyncio.sleep(0.2)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        return await tools["calculate"].call({"expression": "1"}, tools["wait"].begin())

    assert asyncio.run(cancel()).text == "1"
    assert pool_of(tools["time"].config).opened == 1


def test_a_server_that_cannot_be_started_or_reached_is_an_error():
    with pytest.raises(ServiceError, match=r"MCP server 'mcp' \(/no/such/program\) cannot be reached"):
        make_tools("mcp(command='/no/such/program')")
    with pytest.raises(ServiceError, match=r"cannot be reached|did not answer"):
        make_tools("mcp(command='sleep 60', connect_timeout=0.3)")
    with pytest.raises(ServiceError, match="its last output is: no key was given"):
        make_tools("mcp(command='sh', args=['-c', 'echo no key was given >&2'], connect_timeout=3)")
    with pytest.raises(ServiceError, match=r"cannot be reached|did not answer"):
        make_tools(f"mcp(url='http://127.0.0.1:{free_port()}/mcp', connect_timeout=0.3)")


def test_several_servers_from_a_file(tmp_path, port):
    command, *args = EXAMPLE.split()
    servers = {
        "one": {"command": command, "args": args, "env": ENVIRONMENT, "type": "stdio"},
        "two": {"url": f"http://127.0.0.1:{port}/mcp"},
        "off": {"command": "nothing", "disabled": True},
    }
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    tools = tools_by_name(config=str(file), only=["calculate"])
    assert sorted(tools) == ["one_calculate", "two_calculate"]
    assert [call(tool, expression="3").text for tool in tools.values()] == ["3", "3"]
    with pytest.raises(ConfigError, match=r"unknown tools sing\. Available: time"):
        mcp_tools(config=str(file), only=["sing"])


# -- configuration ----------------------------------------------------------------------------


def test_wrong_configurations_are_reported_in_one_line(tmp_path):
    for given, said in (
        ({}, "expected either command= or url="),
        ({"command": "a", "url": "http://b"}, "expected either command= or url="),
        ({"url": "localhost"}, "url='localhost': expected http:// or https://"),
        ({"command": "a", "sessions": "each"}, "expected shared or episode"),
        ({"command": "a", "timeout": 0}, "timeout=0: expected a number above 0"),
        ({"command": "a", "concurrency": 1.5}, "expected a whole number of at least 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            server_config("x", **given)
    with pytest.raises(ConfigError, match="expected exactly one of command=, url=, and config="):
        mcp_tools()
    with pytest.raises(TypeError, match="depth"):
        mcp_tools(command="a", depth=3)
    file = tmp_path / "servers.json"
    for text, kind, said in (
        ("{", DataError, "cannot be read as JSON"),
        ("[]", ConfigError, "expected an object 'mcpServers'"),
        ('{"mcpServers": {"a": 1}}', ConfigError, "an object for each server"),
    ):
        file.write_text(text)
        with pytest.raises(kind, match=said):
            read_servers(file)


def test_a_command_line_is_split():
    assert server_config("x", command="python -m 'a b'") == ServerConfig("x", "python", ("-m", "a b"))
    assert server_config("x", command="a b", args=["c"]) == ServerConfig("x", "a b", ("c",))


def test_names_fit_tools():
    assert [tool_name(name) for name in ("plain", "a/b c", "9lives", "")] == [
        "plain",
        "a_b_c",
        "t_9lives",
        "t_",
    ]
