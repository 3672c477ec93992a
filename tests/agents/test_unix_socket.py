"""The gateway behind a Unix socket, for a program without the network of this machine."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

import aiohttp

from gem_agents import AgentTask
from gem_core.errors import ConfigError
from tests.agents.clients import guesser
from tests.agents.stage import stage
from tests.agents.test_harness import play, told

PATH = "/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Guess."}]}


def test_an_episode_is_that_of_the_port() -> None:
    pytest.importorskip("openai", reason="needs the package openai")
    paths = []

    async def over_socket(task: AgentTask) -> None:
        async with task.unix_socket() as path:
            paths.append(path)
            assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
            await guesser(replace(task, url=f"http://localhost/{task.url.split('/', 3)[3]}"), path)

    for seed in range(3):
        mine, native = play(over_socket, seed), play(guesser, seed)
        assert "harness_error" not in mine.metadata
        assert told(mine) == told(native)
        assert len(mine.turns) > 1
    assert len({*paths}) == 3
    assert not any(os.path.exists(os.path.dirname(path)) for path in paths)


def test_connections_of_one_socket_are_told_apart() -> None:
    """They have no addresses. One that ends leaves the others alone."""

    async def main() -> list[int]:
        async with stage(["a", "b", "c"]) as at, at.gateway.unix_socket() as path:
            url = f"{at.base}/v1{PATH}"
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as kept:
                statuses = []
                for http in (kept, aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)), kept):
                    async with http.post(url, json=BODY) as answer:
                        statuses.append(answer.status)
                        await answer.read()
                    if http is not kept:
                        await http.close()
                        while len(at.gateway._server.guard.connections) > 1:  # type: ignore[union-attr]
                            await asyncio.sleep(0.01)
                return statuses

    assert asyncio.run(main()) == [200, 200, 200]


def test_a_cancel_removes_the_socket() -> None:
    async def main() -> str:
        async with stage() as at:
            opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            async def work() -> None:
                task = AgentTask("", at.base, gateway=at.gateway)
                async with task.unix_socket() as path:
                    opened.set_result(path)
                    await asyncio.sleep(600)

            running = asyncio.ensure_future(work())
            path = await opened
            assert os.path.exists(path)
            running.cancel()
            await asyncio.wait({running})
            assert running.cancelled()
            return path

    assert not os.path.exists(os.path.dirname(asyncio.run(main())))


def test_a_long_temporary_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    async def main() -> str:
        async with stage() as at, at.gateway.unix_socket() as path:
            assert stat.S_ISSOCK(os.stat(path).st_mode)
            return path

    assert len(asyncio.run(main())) < 100


def test_a_task_without_a_gateway_has_no_socket() -> None:
    async def main() -> None:
        async with AgentTask("", "http://localhost").unix_socket():
            pass

    with pytest.raises(ConfigError, match="no gateway"):
        asyncio.run(main())
