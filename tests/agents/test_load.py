"""Many agents at once against one gateway."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("transformers", reason="needs transformers, of the extra 'train'")

from gem_envs.serving import _http
from tests.agents.stage import stage

ROOT = Path(__file__).resolve().parents[2]
AGENTS, TURNS = 100, 4


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The measurement of benchmarks/gateway_load.py, which fails if a turn is lost."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gateway_load").load


def test_a_hundred_agents_lose_no_turn_and_leave_nothing_open(load: Any) -> None:
    row = asyncio.run(load(AGENTS, TURNS, 0.5))
    assert row["most_open"] > AGENTS // 2
    assert (row["tasks_left"], row["sockets_left"], row["sessions_left"]) == (0, 0, 0)


def test_an_agent_on_a_busy_machine_may_send_its_first_request_late() -> None:
    async def main() -> bytes:
        async with stage(["late"]) as at:
            host, port = at.base.removeprefix("http://").split("/")[0].split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            await asyncio.sleep(11)
            path = at.base.partition(port)[2]
            writer.write(f"GET {path}/v1/models HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            answer = await reader.readline()
            writer.close()
            return answer

    assert b"200" in asyncio.run(main())


def test_an_agent_that_hangs_up_when_it_has_read_its_answer_has_got_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine, the agent hangs up before the server goes on."""
    send = _http._send

    async def late(*given: Any) -> None:
        await send(*given)
        await asyncio.sleep(60)

    monkeypatch.setattr(_http, "_send", late)

    async def main() -> None:
        async with stage(["first"]) as at:
            host, port = at.base.removeprefix("http://").split("/")[0].split(":")
            body = b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'
            path = at.base.partition(port)[2] + "/v1/chat/completions"
            head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"}}}")
            writer.close()
            assert b"first" in answer
            while any(exchange.waiting for exchange in at.session._all()):
                await asyncio.sleep(0.01)
            await at.gateway.close(at.session)
            assert (len(at.session.delivered()), at.session.counts.lost) == (1, 0)

    asyncio.run(main())
