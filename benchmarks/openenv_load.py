"""Closed-loop load on an OpenEnv server: every session sends its next step as soon as it has its answer.

The load runs on picows, which is written in Cython, so that it is faster than any of the servers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from gem_envs.serving._run import run_loop

try:
    from picows import WSListener, WSMsgType, ws_connect
except ImportError:  # needed to measure, not to read records
    WSListener = object


def message(kind: str, **data: Any) -> bytes:
    """Return a message."""
    return json.dumps({"type": kind, "data": data}).encode()


RESETS = [message("reset", seed=seed) for seed in range(64)]
STEPS = [message("step", message=f"I think it is \\boxed{{{index % 10 + 1}}}.") for index in range(64)]


class Load:
    """Counts over all sessions.

    Attributes:
        measuring: Whether steps are counted.
        ended: Whether sessions stop.
        seconds: Time from each counted step to its answer.
        failures: Number of failures by text.
    """

    def __init__(self) -> None:
        self.measuring = self.ended = False
        self.seconds: list[float] = []
        self.failures: dict[str, int] = {}

    def fail(self, text: str) -> None:
        """Count a failure."""
        self.failures[text] = self.failures.get(text, 0) + 1


class Player(WSListener):  # type: ignore[misc]
    """One session."""

    def __init__(self, load: Load, index: int) -> None:
        super().__init__()
        self.load, self.index = load, index
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent = 0.0
        self.resetting = True
        self.transport: Any = None

    def on_ws_connected(self, transport: Any) -> None:
        self.transport = transport
        self.begin()

    def on_ws_disconnected(self, transport: Any) -> None:
        if not self.load.ended:
            self.load.fail("connection lost")
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("lost before it was ready"))

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        if frame.msg_type == WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())
        elif frame.msg_type == WSMsgType.TEXT:
            self.receive(frame.get_payload_as_bytes())

    def receive(self, payload: bytes) -> None:
        """Handle an answer."""
        load = self.load
        if b'"error"' in payload[:40]:
            load.fail(payload[:100].decode())
            return
        if self.resetting:
            self.resetting = False
            if not self.ready.done():
                self.ready.set_result(None)
                return
        else:
            if load.measuring:
                load.seconds.append(time.perf_counter() - self.sent)
            if b'"done":true' in payload or b'"done": true' in payload:
                self.resetting = True
                self.index += 1
                self.begin()
                return
        if not load.ended:
            self.step()

    def begin(self) -> None:
        """Send a reset."""
        self.write(RESETS[self.index % 64])

    def step(self) -> None:
        """Send the next step."""
        self.index += 1
        self.sent = time.perf_counter()
        self.write(STEPS[self.index % 64])

    def write(self, text: bytes) -> None:
        """Send a message."""
        self.transport.send(WSMsgType.TEXT, text)


def process_use(pid: int) -> tuple[float, float, int]:
    """Return CPU seconds, resident memory in KB, and number of threads of a process."""
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rsplit(")", 1)[1].split()
    cpu = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return cpu, float(fields["VmRSS"].split()[0]), int(fields["Threads"])


async def connected(url: str, make: Callable[[], Any]) -> Any:
    """Open a session and return its player, once that is ready."""
    address = f"{url.replace('http', 'ws', 1)}/ws"
    _, player = await asyncio.wait_for(ws_connect(make, address, enable_auto_ping=False), 120)
    await asyncio.wait_for(player.ready, 120)
    return player


async def run(url: str, sessions: int, seconds: float, pid: int) -> dict[str, Any]:
    """Open the sessions, step for a while, and return the figures; with ``seconds=0``, only hold them."""
    load = Load()
    before = process_use(pid)
    gate = asyncio.Semaphore(64)

    async def connect(index: int) -> Any:
        async with gate:
            try:
                player = await connected(url, lambda: Player(load, index))
            except (OSError, asyncio.TimeoutError) as error:
                load.fail(f"connect: {type(error).__name__}")
                return None
            return player

    began = time.perf_counter()
    players = [p for p in await asyncio.gather(*map(connect, range(sessions))) if p is not None]
    took_to_connect = time.perf_counter() - began
    start, used = time.perf_counter(), process_use(pid)
    load.measuring = True
    for player in players:
        player.step()
    if seconds:
        await asyncio.sleep(seconds)
    else:
        while len(load.seconds) < len(players) and not load.failures:
            await asyncio.sleep(0.05)
    load.measuring, took, after = False, time.perf_counter() - start, process_use(pid)
    load.ended = True
    times = sorted(load.seconds)
    for player in players:
        player.transport.disconnect()
    await asyncio.sleep(0.2)
    cpu = after[0] - used[0]
    return {
        "sessions": sessions,
        "held": len(players),
        "failures": load.failures,
        "connect_s": round(took_to_connect, 2),
        "steps_per_s": round(len(times) / took, 1),
        "steps_per_cpu_s": round(len(times) / cpu, 1) if cpu else None,
        "p50_ms": round(1000 * times[len(times) // 2], 2) if times else None,
        "p99_ms": round(1000 * times[int(len(times) * 0.99)], 2) if times else None,
        "kb_per_session": round((after[1] - before[1]) / max(1, len(players)), 2),
        "rss_mb": round(after[1] / 1024, 1),
        "threads": after[2],
        "server_cpu": round(cpu / took, 2),
    }


if __name__ == "__main__":
    figures = run_loop(run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
    print(json.dumps(figures))
