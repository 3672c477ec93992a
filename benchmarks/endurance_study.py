"""Hours of a busy trainer in minutes: overload, cancels, and killed servers, with nothing lost at the end.

    python benchmarks/endurance_study.py --minutes 30 --out docs/results/endurance.json

Episodes of four kinds play in one `EnvPool`, ten times as many as there are places: programs in the sandbox
under a time limit for steps, the Python tool under a time limit for calls, sessions of an OpenEnv server with
worker processes, and sessions of an MCP server. One episode in five is canceled at a random moment. Every few
seconds the OpenEnv server, one of its workers, the MCP server, or a fork server of the sandbox is killed, or
the OpenEnv server is told to end and must do so.

An episode that ends by itself must earn what the same seed earned alone; one whose environment was killed
is counted with its error. Threads, descriptors, processes, memory, and sessions are read at rest, after a
minute of load and at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import records
from soak_study import descendants, usage

import gem_core
from gem_chat import MessagesContext
from gem_core.errors import EnvError
from gem_core.rollout import ChatReply, EnvPool, EpisodeLimits
from gem_core.rollout._messages import Message
from gem_envs.sandbox import open_sandbox
from gem_envs.sandbox._levels import close_sandboxes

PLACES, OVERLOAD = 4, 10
"""Places of each kind (concurrent programs, sessions of a server), and episodes per place."""
CANCELED = 0.2
SEEDS = 12
SERVED = "game:GuessTheNumber-v0-easy"
LIMITS = EpisodeLimits(max_turns=60, step_timeout=20.0)
REST_SECONDS = 40.0
"""Longer than idle threads live."""


class Product(gem_core.Env):
    """Asks for a product, whose digits no error message contains."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        a, b = self.random.randrange(3000, 9000), self.random.randrange(3000, 9000)
        self._answer = str(a * b)
        return f"What is {a} times {b}?", {}

    def step(self, action: str) -> Any:
        self.require_reset()
        self.end_episode()
        return "", float(action == f"\\boxed{{{self._answer}}}"), True, False, {}


class Programs(gem_core.Env):
    """Runs three programs; the reward is what they print, divided by their number."""

    blocking = True

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self._done, self._share = 0, self.random.randrange(1, 100) / 100
        return "go", {}

    def step(self, action: str) -> Any:
        self.require_reset()
        code = f"import time; time.sleep(0.1); print({self._share})"
        result = open_sandbox(workers=PLACES // 4).run(code)
        if result.ending != "ok":
            raise EnvError(f"the program was {result.ending}")
        self._done += 1
        if self._done == 3:
            self.end_episode()
        return "on", float(result.stdout) / 3, self._done == 3, False, {}


class Player:
    """A fixed policy: it repeats a call until it succeeds, and answers wrongly at every third seed."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._seed = kind, seed

    async def reply(
        self, messages: list[Message], *, max_tokens: int, request_id: str, tools: Sequence[Any] = ()
    ) -> ChatReply:
        """Return the next action."""
        await asyncio.sleep(0.005)
        turns = len(messages) // 2
        if self._kind not in ("python", "mcp"):
            return ChatReply(f"\\boxed{{{(1 + 7 * turns) % 10}}}")
        found = re.findall(r"\b[0-9]{7,8}\b", str(messages[-1]["content"])) if turns else ()
        if found:
            return ChatReply("\\boxed{" + ("1" if self._seed % 3 == 0 else found[-1]) + "}")
        a, b = re.findall(r"What is ([0-9]+) times ([0-9]+)", str(messages[0]["content"]))[0]
        if self._kind == "python":
            return ChatReply(f"<python>print({a} * {b})</python>")
        call = {"name": "calculate", "arguments": {"expression": f"{a} * {b}"}}
        return ChatReply(f"<tool_call>{json.dumps(call)}</tool_call>")


class Server:
    """A server process on a port of its own, started again whenever it ends."""

    def __init__(self, *arguments: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._command = [sys.executable, "-m", *arguments, "--port", str(self.port)]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def ready(self) -> None:
        """Wait until the server accepts connections."""
        while True:
            if self.process.poll() is not None:
                self.process = self._start()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                await asyncio.sleep(0.2)

    async def end(self, number: signal.Signals) -> int:
        """Send a signal, wait for the end, and start the server again; return the exit code."""
        self.process.send_signal(number)
        while self.process.poll() is None:
            await asyncio.sleep(0.05)
        code = self.process.returncode
        await self.ready()
        return code


class Endurance:
    """The load.

    Attributes:
        counts: Number of episodes and of killed processes by kind.
        lost: Number of episodes that ended with an error of the environment, by kind and error.
        errors: What must not happen, and how often it did.
    """

    def __init__(self, openenv: Server, mcp: Server) -> None:
        self.counts: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._openenv, self._mcp = openenv, mcp
        self._earned: dict[tuple[str, int], float] = {}
        url = f"mcp(url='http://127.0.0.1:{mcp.port}/mcp',only=['calculate'],sessions='episode'"
        url += f",max_sessions={PLACES},timeout=5,connect_timeout=10)"
        product = "endure:Product-v0"
        tools = {"max_tool_uses": 50, "timeout": 5.0}
        self._kinds: dict[str, tuple[EnvPool, str, dict[str, Any]]] = {
            "programs": (EnvPool(), "endure:Programs-v0", {}),
            "python": (EnvPool(), product, {"tools": "python", **tools}),
            "mcp": (EnvPool(), product, {"tools": url, **tools}),
            "openenv": (EnvPool(), f"openenv:http://127.0.0.1:{openenv.port}", {}),
        }

    async def alone(self) -> None:
        """Play each seed of each kind without load."""
        for kind in self._kinds:
            for seed in range(SEEDS):
                episode = await self._play(kind, seed)
                if episode.stop_reason == "env_error":
                    raise SystemExit(f"{kind}: {episode.error}")
                self._earned[kind, seed] = episode.total_reward
            if not any(self._earned[kind, seed] for seed in range(SEEDS)):
                raise SystemExit(f"{kind} earns nothing alone")

    async def _play(self, kind: str, seed: int) -> Any:
        pool, id, tools = self._kinds[kind]
        wrappers = (
            f"tools({', '.join(f'{name}={value!r}' for name, value in tools.items())})" if tools else ""
        )
        row: Any = {
            "env_id": id, "env_kwargs": {"wrappers": wrappers} if wrappers else {}, "seed": seed,
            "index": seed, "item": None,
        }  # fmt: skip
        return await pool.play(row, Player(kind, seed), MessagesContext(), LIMITS, log_errors=False)

    async def _work(self, kind: str, choices: random.Random, end: float) -> None:
        while time.monotonic() < end:
            seed = choices.randrange(SEEDS)
            task = asyncio.ensure_future(self._play(kind, seed))
            if choices.random() < CANCELED:
                await asyncio.wait({task}, timeout=choices.random() * 2)
                if task.cancel():
                    await asyncio.wait({task})
            try:
                episode = await task
            except asyncio.CancelledError:
                self.counts[f"{kind} canceled"] += 1
                continue
            if episode.stop_reason == "env_error":
                self.counts[f"{kind} lost"] += 1
                self.lost[f"{kind}: {_without_numbers(episode.error)}"] += 1
            elif episode.stop_reason == "max_turns":
                self.counts[f"{kind} cut"] += 1
            elif episode.total_reward != self._earned[kind, seed]:
                self.errors[f"{kind}: seed {seed} earned {episode.total_reward}"] += 1
            else:
                self.counts[f"{kind} right"] += 1

    async def _kill(self, choices: random.Random, end: float) -> None:
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, choices.uniform(2, 8)))
            what = choices.choice(("server", "worker", "term", "mcp", "fork server"))
            if what == "server":
                await self._openenv.end(signal.SIGKILL)
            elif what == "term":
                if code := await self._openenv.end(signal.SIGTERM):
                    self.errors[f"the server exited with {code} at SIGTERM"] += 1
            elif what == "mcp":
                await self._mcp.end(choices.choice((signal.SIGKILL, signal.SIGTERM)))
            else:
                parent, word = {
                    "worker": (self._openenv.process.pid, "bridges.openenv.worker"),
                    "fork server": (os.getpid(), "sandbox/_guest/server.py"),
                }[what]
                if not _kill_one(parent, word, choices):
                    continue
            self.counts[f"killed: {what}"] += 1

    async def run(self, seconds: float, seed: int) -> None:
        """Play under load for some time; then close everything."""
        end = time.monotonic() + seconds
        works = [
            self._work(kind, random.Random(f"{seed} {kind} {n}"), end)
            for kind in self._kinds
            for n in range(PLACES * OVERLOAD)
        ]
        await asyncio.gather(*works, self._kill(random.Random(seed), end))
        for pool, _, _ in self._kinds.values():
            pool.close()

    def sessions(self) -> int:
        """Return the number of sessions of the OpenEnv server."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self._openenv.port}/metrics", timeout=10) as answer:
            found = re.search(r"^gem_core_sessions (\d+)", answer.read().decode(), re.MULTILINE)
        assert found is not None
        return int(found[1])


def _without_numbers(error: str | None) -> str:
    """Return an error without what differs from one episode to the next: ids, ports, and times."""
    return re.sub(r"\d+(\.\d+)?", "N", error or "no error is given")[:300]


def _kill_one(parent: int, word: str, choices: random.Random) -> bool:
    """Kill one of the processes below a process whose command has a word; return whether there is one."""
    found = []
    for pid in descendants(parent):
        try:
            if word in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"):
                found.append(pid)
        except OSError:  # it has ended
            continue
    if not found:
        return False
    try:
        os.kill(choices.choice(found), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def rest(load: Endurance) -> dict[str, int]:
    """Close what is left, wait, and return what this process holds, and the sessions of the server."""
    from gem_envs.tools.mcp import close_pools

    close_pools()
    close_sandboxes()
    gc.collect()
    time.sleep(REST_SECONDS)
    return {**usage(os.getpid()), "sessions": load.sessions()}


def compare(before: dict[str, int], after: dict[str, int], errors: Counter[str]) -> None:
    """Note what there is more of at the end."""
    room = {"threads": 4, "descriptors": 8, "descendants": 4, "rss_mb": 64, "sessions": 0}
    for name, more in room.items():
        if after[name] > before[name] + more:
            errors[f"{name}: {before[name]} at rest at first, {after[name]} at the end"] += 1


def main() -> None:
    """Run the load, and write what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30, help="length of the run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choices")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    args = parser.parse_args()
    for name in ("gem_core", "mcp"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # failures are counted
    for kind in (Product, Programs):
        gem_core.register(f"endure:{kind.__name__}-v0", kind)
    openenv = Server(
        "gem_core", "serve", "openenv", SERVED, "--max-sessions", str(PLACES), "--workers", "2",
        "--drain-timeout", "1",
    )  # fmt: skip
    mcp = Server("gem_envs.tools.mcp.example")
    try:
        asyncio.run(openenv.ready())
        asyncio.run(mcp.ready())
        load = Endurance(openenv, mcp)
        asyncio.run(load.alone())
        asyncio.run(load.run(min(60.0, args.minutes * 30), args.seed))
        before = rest(load)
        load.counts.clear()
        load.lost.clear()
        asyncio.run(load.run(args.minutes * 60, args.seed + 1))
        after = rest(load)
    finally:
        for server in (openenv, mcp):
            server.process.kill()
            server.process.wait()
    compare(before, after, load.errors)
    for name in ("programs", "python", "mcp", "openenv"):
        if not load.counts[f"{name} right"]:
            load.errors[f"no episode of {name} came to its end"] += 1
    result = {
        "command": " ".join(["python", *sys.argv]),
        "commit": records.commit(),
        "machine": records.machine(),
        "minutes": args.minutes,
        "before": before,
        "after": after,
        "counts": dict(sorted(load.counts.items())),
        "lost": dict(load.lost.most_common()),
        "errors": dict(load.errors),
    }
    text = json.dumps(result, indent=1) + "\n"
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    sys.exit(bool(load.errors))


if __name__ == "__main__":
    main()
