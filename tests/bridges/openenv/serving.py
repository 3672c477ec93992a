"""Runs an `OpenEnvServer` in a thread, so that tests can be plain functions."""

import asyncio
import contextlib
import json
import threading
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

from gem_bridges.openenv import OpenEnvServer
from gem_bridges.openenv._client import Address, ClientSession, SessionLost
from gem_bridges.openenv._served import ServerLimits
from gem_bridges.openenv._server import serve_env
from gem_envs.serving._http import web
from gem_envs.serving._run import run_loop

__all__ = [
    "GUESS",
    "Address",
    "ClientSession",
    "check_a_dead_worker",
    "fetch",
    "play",
    "serving",
    "talk",
    "web",
]

GUESS = "game:GuessTheNumber-v0-easy"


class Running:
    """A server in a thread."""

    def __init__(self, server, loop):
        self.server, self.loop = server, loop
        self.url = f"http://127.0.0.1:{server.port}"

    def do(self, coroutine):
        """Run a coroutine on the server's loop."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # the loop has ended
            coroutine.close()
            raise
        return future.result(60)


@contextlib.contextmanager
def serving(*envs, tls=None, token=None, port=0, **limits):
    """Serve ids, or results of `serve_env`."""
    started, box = threading.Event(), {}

    async def main():
        served = [serve_env(env) if isinstance(env, str) else env for env in envs]
        async with OpenEnvServer(served, ServerLimits(**limits), token) as server:
            await server.listen(port=port, tls=tls)
            box["running"] = Running(server, asyncio.get_running_loop())
            started.set()
            await server.wait_closed()

    def run():
        try:
            run_loop(main())
        except BaseException as error:
            box["error"] = error
        finally:
            started.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait(180)  # Ray starts its actors one after the other
    if "running" not in box:
        raise box["error"]
    running = box["running"]
    try:
        yield running
    finally:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            running.do(running.server.close())
        thread.join(30)
        assert not thread.is_alive()
        if "error" in box:
            raise box["error"]


def fetch(url, body=None, headers=None):
    """Return status and JSON value (or text) of a request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read().decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def talk(url, *messages, token=None):
    """Return the answers to messages ``(type, data)``; an error is returned as the exception."""

    async def main():
        session = await ClientSession.open(Address.parse(url), token, 30)
        answers = []
        try:
            for kind, data in messages:
                try:
                    answers.append(await session.ask(kind, data, 60))
                except Exception as error:
                    answers.append(error)
        finally:
            session.close()
        return answers

    return play(main())


def play(coroutine):
    """Run a coroutine, and wait for the ends of the connections that it closed."""

    async def main():
        try:
            return await coroutine
        finally:
            await asyncio.sleep(0.01)

    return asyncio.run(main())


def check_a_dead_worker(url, id, reason):
    """Check that the death of a worker of `test:Odd...`, for `reason`, costs its sessions one episode."""

    async def main():
        address = Address.parse(f"{url}/{id}")
        one, two, three = [await ClientSession.open(address, None, 30) for _ in range(3)]
        for session in (one, two):
            await session.ask("reset", {"seed": 1}, 60)
        await three.ask("state", {}, 60)
        with pytest.raises(SessionLost, match=reason):
            await one.ask("step", {"message": "exit 3"}, 60)
        with pytest.raises(SessionLost, match=f"{reason}.* and took the episode with it"):
            await two.ask("step", {"message": "hi"}, 60)
        for session in (one, two, three):  # three had no episode to lose
            deadline = time.monotonic() + 60
            while True:
                try:
                    await session.ask("reset", {"seed": 2}, 60)
                    break
                except SessionLost:  # until the new worker has started
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.1)
            assert (await session.ask("step", {"message": "hi"}, 60))["reward"] == 0.25
            session.close()

    play(main())
    assert "gem_core_lost_workers 1" in fetch(f"{url}/metrics")[1]
