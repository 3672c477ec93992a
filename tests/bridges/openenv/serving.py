"""Runs an `OpenEnvServer` in a thread, so that tests can be plain functions."""

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request

from gem_core.bridges.openenv.client import Address, ClientSession
from gem_core.bridges.openenv.served import ServerLimits
from gem_core.bridges.openenv.server import OpenEnvServer, serve_env

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
            asyncio.run(main())
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
