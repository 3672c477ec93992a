"""What breaks around an agent: nothing is sampled twice, no turn is lost, no process remains."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
pytest.importorskip("jinja2", reason="needs jinja2, of the extra 'train'")

from gem_agents import Command
from gem_agents._gateway import GatewayLimits
from tests.agents.faulty import Fault, breaking, cut, hang_up, lose, status
from tests.agents.stage import stage
from tests.agents.test_harness import LIMITS, play, runs
from tests.agents.test_traps import settle

ANSWERS = ["first", "<think>hm</think>\nsecond", "third"]
SAID = ["first", "second", "third"]
FAULTS: dict[str, Fault] = {
    "429": status(429),
    "500": status(500),
    "503": status(503),
    "no connection": hang_up,
    "lost while sampling": lose,
    "cut while sampling": cut,
}
_TRIES = 3


async def chat(base: str, stream: bool) -> list[str]:
    from openai import AsyncOpenAI

    messages: list[Any] = []
    async with AsyncOpenAI(base_url=f"{base}/v1", api_key="none") as client:

        async def ask() -> str:
            asked: dict[str, Any] = {"model": "m", "messages": messages}
            if not stream:
                return str((await client.chat.completions.create(**asked)).choices[0].message.content)
            parts = [
                chunk.choices[0].delta.content or ""
                async for chunk in await client.chat.completions.create(**asked, stream=True)
                if chunk.choices
            ]
            return "".join(parts)

        return await _talk(ask, messages)


async def responses(base: str, stream: bool) -> list[str]:
    from openai import AsyncOpenAI

    messages: list[Any] = []
    async with AsyncOpenAI(base_url=f"{base}/v1", api_key="none") as client:

        async def ask() -> str:
            if not stream:
                return (await client.responses.create(model="m", input=messages)).output_text
            async with client.responses.stream(model="m", input=messages) as events:
                return (await events.get_final_response()).output_text

        return await _talk(ask, messages)


async def anthropic(base: str, stream: bool) -> list[str]:
    from anthropic import AsyncAnthropic

    messages: list[Any] = []
    async with AsyncAnthropic(base_url=base, api_key="none") as client:

        async def ask() -> str:
            asked: dict[str, Any] = {"model": "m", "max_tokens": 1000, "messages": messages}
            if not stream:
                return "".join(block.text for block in (await client.messages.create(**asked)).content)
            async with client.messages.stream(**asked) as events:
                return await events.get_final_text()

        return await _talk(ask, messages)


async def _talk(ask: Callable[[], Any], messages: list[Any]) -> list[str]:
    """Ask three times; what the SDK does not repeat is repeated here, as agents do."""
    said = []
    for number in range(len(ANSWERS)):
        messages.append({"role": "user", "content": f"Question {number}"})
        for left in reversed(range(_TRIES)):
            try:
                said.append(await ask())
                break
            except Exception:
                if not left:
                    raise
        messages.append({"role": "assistant", "content": said[-1]})
    return said


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("drive", [chat, responses, anthropic])
def test_a_broken_line_costs_no_turn_and_no_sample(drive: Any, stream: bool, fault: str) -> None:
    package = "anthropic" if drive is anthropic else "openai"
    pytest.importorskip(package, reason=f"needs the package {package}")

    async def main() -> None:
        slow = stage(ANSWERS, seconds=0.3, limits=GatewayLimits(heartbeat=0.05))
        async with slow as on, breaking(on.base, FAULTS[fault], 0) as base:
            assert await drive(base, stream) == SAID
            await settle()
            assert len(on.policy.sampled) == len(ANSWERS)
            episode = on.episode()
            assert [turn.action for turn in episode.turns] == SAID
            assert episode.context_mode == "append"
            assert on.session.counts.lost == 0

    asyncio.run(main())


PARALLEL = """
import json, os, subprocess, sys, time, urllib.error, urllib.request

def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))

def ask(text):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)

if len(sys.argv) > 2:  # a child, which asks until the episode is over, and stays
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()} ")
    try:
        while True:
            ask(sys.argv[2])
    except urllib.error.HTTPError as error:
        with open(sys.argv[1] + ".ends", "a") as file:
            file.write(f"{error.code} ")
    time.sleep(600)
command = [sys.executable, os.environ["HOME"] + "/agent.py", sys.argv[1]]
for number in range(3):  # the first one leaves the group of processes
    subprocess.Popen([*command, f"part {number}"], start_new_session=number == 0)
ends = open(sys.argv[1] + ".ends", "a+")
while len(ends.read().split()) < 3:
    time.sleep(0.05)
    ends.seek(0)
{end}
"""


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "time.sleep(600)"], ids=["crashes", "hangs"])
def test_agents_in_parallel_that_call_after_the_end_leave_nothing_behind(end: str, tmp_path: Path) -> None:
    files = {"agent.py": PARALLEL.replace("{end}", end)}
    command = [sys.executable, "agent.py", str(tmp_path / "pids")]
    harness = Command(command, files=files, level="process")
    episode = play(harness, 0, replace(LIMITS, harness_timeout=30.0))
    assert len(episode.turns) == LIMITS.max_turns
    assert episode.stop_reason == "max_turns"
    assert episode.metadata["gateway"]["refused"] == 3
    assert (tmp_path / "pids.ends").read_text().split() == ["400"] * 3
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    assert ended(pids)


def ended(pids: list[int]) -> bool:
    """Return whether all processes end within a minute; a busy machine takes a while."""
    for _ in range(600):
        if not any(map(runs, pids)):
            return True
        time.sleep(0.1)
    return False
