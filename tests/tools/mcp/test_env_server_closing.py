"""The episodes of a server over MCP: limits under parallel calls, failures, cancels, and closes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs.tools import _loop
from tests.support import recorded
from tests.support.recorded import IDS, Record, wait_until

pytest.importorskip("mcp", reason="needs the extra 'mcp'")

from gem_envs.tools.mcp import close_pools, mcp_tools
from gem_envs.tools.mcp._env_server import ANYONE, ServedEpisodes
from tests.tools.mcp.servers import free_port, wait_for

LOCAL = [id for id in IDS if "Computes" not in id]


@pytest.fixture(scope="module", autouse=True)
def ids():
    recorded.register()


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "record")


def episodes_of(id, record, limits=None, **seconds):
    return ServedEpisodes(lambda: gem_core.make(id, path=str(record._path), **seconds), **(limits or {}))


@pytest.mark.parametrize("id", LOCAL)
@pytest.mark.parametrize("owner", ["one", ANYONE])
@pytest.mark.parametrize("limits", [{"most": 2}, {"total": 2}])
def test_parallel_resets_stay_within_the_limits(record, id, owner, limits):
    async def play():
        episodes = episodes_of(id, record, limits, build=0.05)
        most = 0

        async def start(number):
            nonlocal most
            answer = await episodes.reset(number, None, owner)
            most = max(most, len(episodes._running), len(record.open()))
            return answer

        answers = await asyncio.gather(*(start(n) for n in range(20)), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, ConfigError)]
        assert len(answers) - len(refused) == 2
        assert most == 2
        for answer in answers:
            if isinstance(answer, dict):
                await episodes.step(answer["episode"], "0")
        episodes.close()

    asyncio.run(play())
    assert record.open() == set()


@pytest.mark.parametrize("id", LOCAL)
def test_an_environment_whose_step_raised_is_not_stepped_again(record, id):
    async def play():
        episodes = episodes_of(id, record)
        name = (await episodes.reset(1, None))["episode"]
        steps = [episodes.step(name, text) for text in ("raise", "0", "0")]  # the others wait for the first
        first, *others = await asyncio.gather(*steps, return_exceptions=True)
        assert isinstance(first, ValueError)
        assert all(isinstance(other, ConfigError) for other in others)
        with pytest.raises(ConfigError, match="there is no episode"):
            await episodes.step(name, "0")
        assert not episodes._running
        assert not episodes._idle
        episodes.close()

    asyncio.run(play())
    assert record.count("begins") == 1
    assert record.open() == set()


@pytest.mark.parametrize("id", LOCAL[1:])
@pytest.mark.parametrize("end", ["evicted", "canceled", "server closed"])
def test_no_environment_is_closed_while_its_step_runs(record, id, end):
    async def play():
        episodes = episodes_of(id, record, {"most": 1}, step=0.4, close=0.1)
        name = (await episodes.reset(1, None, "one"))["episode"]
        step = asyncio.ensure_future(episodes.step(name, ""))
        while not record.count("begins"):
            await asyncio.sleep(0.01)
        if end == "evicted":
            other = (await episodes.reset(2, None, "one"))["episode"]
            await step
            await episodes.step(other, "0")
        else:
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            if end == "canceled":
                with pytest.raises(ConfigError, match="there is no episode"):
                    await episodes.step(name, "0")
        episodes.close()
        return threading.current_thread().name

    thread = asyncio.run(play())
    assert record.open() == set()
    assert record.closed_while_stepping() == []
    assert thread not in record.closing_threads()


@pytest.mark.parametrize("id", LOCAL)
def test_a_reset_that_is_canceled_while_its_environment_is_built(record, id):
    async def play():
        episodes = episodes_of(id, record, {"most": 1}, build=0.2)
        for _ in range(3):
            reset = asyncio.ensure_future(episodes.reset(1, None, "one"))
            await asyncio.sleep(0.05)
            reset.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reset
        await episodes.reset(1, None, "one")  # the place is free
        episodes.close()
        with pytest.raises(ConfigError, match="shutting down"):
            await episodes.reset(1, None, "one")

    asyncio.run(play())
    assert record.count("built") == 4
    assert record.open() == set()


def test_a_close_that_hangs_holds_up_nobody(record):
    async def play():
        episodes = episodes_of(IDS[0], record, {"most": 1}, close=1.0)
        for number in range(3):  # each evicts the one before
            await episodes.reset(number, None, "one")
        assert record.count("closed") == 0
        episodes.close()

    asyncio.run(play())
    assert record.open() == set()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", ["http", "stdio"])
def test_signals_end_the_command(record, end, how):
    """With three episodes, one of them in a step, and with clients that keep their connections open."""
    id = f"{IDS[1]}(path={str(record._path)!r},close=0.2)"
    code = "import sys\nfrom gem_lab import main\nfrom tests.support import recorded\nrecorded.register()\n"
    command = [sys.executable, "-c", f"{code}sys.exit(main(sys.argv[1:]))", "serve", "mcp", id]
    if how == "stdio":
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        talk = _Talk(process)
        for number in range(3):
            name = talk.call("reset", seed=number)
        talk.send("tools/call", {"name": "step", "arguments": {"episode": name, "action": "0.5"}})
    else:
        port = free_port()
        process = subprocess.Popen([*command, "--port", str(port)])
        wait_for(port, process)
        tools = {tool.name: tool for tool in mcp_tools(url=f"http://127.0.0.1:{port}/mcp")}
        reset, step = tools["reset"], tools["step"]
        names = [_episode(_loop.run(reset.call({"seed": n}, reset.begin())).text) for n in range(3)]
        _loop.submit(step.call({"episode": names[0], "action": "0.5"}, step.begin()))
    try:
        wait_until(lambda: record.count("begins"))
        assert len(record.open()) == 3
        process.send_signal(end)
        assert process.wait(60) == 0
        assert record.open() == set()
        assert record.closed_while_stepping() == []
    finally:
        process.kill()
        process.wait()
        close_pools()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _episode(text):
    return json.loads(text)["episode"]


class _Talk:
    """A client over pipes, in the words of the protocol."""

    def __init__(self, process):
        self._process, self._number = process, 0
        client = {"name": "test", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self._write({"method": "notifications/initialized"})

    def call(self, name, **arguments):
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        return _episode(answer["result"]["content"][0]["text"])

    def ask(self, method, params):
        number = self.send(method, params)
        while True:
            message = json.loads(self._process.stdout.readline())
            if message.get("id") == number:
                return message

    def send(self, method, params):
        self._number += 1
        self._write({"id": self._number, "method": method, "params": params})
        return self._number

    def _write(self, message):
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()
