"""CPU time per call of gem-core's gateway and of two others, in front of the same engine.

    python benchmarks/gateway_study.py --litellm VENV/bin/litellm --rllm VENV/bin/rllm-model-gateway

Each peer needs an environment of its own, with ``pip install "litellm[proxy]==1.108.7"`` and
``pip install rllm-model-gateway==0.1.0``. A round is 32 episodes of 8 calls at every gateway, 16
episodes at once; each call has the history of the calls before. The order of the gateways changes. What
counts is the CPU time of the gateway's process, not that of the engine or of the client. The load of
`gateway_load.py` is measured in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import records
from gateway_load import SHOWN
from gateway_servers import ANSWER

from gem_lab.eval._intervals import estimate_t

FOLDER = Path(__file__).parent
RECORD = FOLDER.parent / "docs" / "results" / "gateway.json"
EPISODES, CALLS, AT_ONCE = 32, 8, 16
OURS = "gem-core"
LITELLM = """
model_list: [{model_name: policy, litellm_params: {model: openai/policy, api_base: %s/v1, api_key: none}}]
"""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used + sum(cpu_seconds(int(child)) for child in children)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Server:
    """A gateway in a process of its own.

    Attributes:
        process: The process.
    """

    def __init__(self, process: subprocess.Popen[str], url: str = "") -> None:
        self.process, self._url = process, url

    def ask(self, line: str = "") -> str:
        """Write a line to the process, if there is one, and return the next line that it writes."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if line:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    async def open(self, http: aiohttp.ClientSession) -> str:
        """Return the address of the model for a new episode."""
        return f"{self._url}/v1"

    async def close(self, http: aiohttp.ClientSession) -> None:
        """End all episodes."""


class GemCore(Server):
    """gem-core's gateway, with a session for each episode."""

    async def open(self, http: aiohttp.ClientSession) -> str:
        return self.ask("open") + "/v1"

    async def close(self, http: aiohttp.ClientSession) -> None:
        turns = int(self.ask("close"))
        if turns != EPISODES * CALLS:
            raise RuntimeError(f"gem-core has {turns} turns: expected {EPISODES * CALLS}")


class Rllm(Server):
    """rLLM's gateway, with a session for each episode."""

    async def open(self, http: aiohttp.ClientSession) -> str:
        async with http.post(f"{self._url}/sessions", json={}) as answer:
            session = (await answer.json())["session_id"]
        return f"{self._url}/sessions/{session}/v1"


@contextmanager
def started(command: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command, and end it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def start(stack: ExitStack, folder: Path, litellm: str, rllm: str) -> dict[str, Server]:
    """Start the engine and all gateways."""
    own = [sys.executable, str(FOLDER / "gateway_servers.py")]
    engine = Server(stack.enter_context(started([*own, "engine"]))).ask()
    ours = GemCore(stack.enter_context(started([*own, "gem-core", engine])))
    if ours.ask() != "ready":
        raise RuntimeError("gem-core's gateway did not start")
    config = folder / "litellm.yaml"
    config.write_text(LITELLM % engine)
    variables = {
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    here = ["--host", "127.0.0.1"]
    commands: dict[str, tuple[type[Server], list[str]]] = {
        "litellm": (Server, [litellm, "--config", str(config), "--telemetry", "False", *here]),
        "rllm-model-gateway": (
            Rllm,
            [rllm, "--worker", f"{engine}/v1", "--store", "memory", "--log-level", "ERROR", *here],
        ),
    }
    servers: dict[str, Server] = {OURS: ours}
    for name, (kind, command) in commands.items():
        port = free_port()
        process = stack.enter_context(started([*command, "--port", str(port)], **variables))
        servers[name] = kind(process, f"http://127.0.0.1:{port}")
    return servers


async def episode(server: Server, http: aiohttp.ClientSession, places: asyncio.Semaphore) -> None:
    """Play an episode: its history grows by an answer and an observation with each call."""
    async with places:
        url = await server.open(http)
        messages = [{"role": "user", "content": SHOWN}]
        for _ in range(CALLS):
            async with http.post(
                f"{url}/chat/completions", json={"model": "policy", "messages": messages}
            ) as got:
                body = await got.json()
            said = body["choices"][0]["message"]["content"]
            if said != ANSWER:
                raise RuntimeError(f"a gateway answered {body}")
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": SHOWN}]


async def ready(server: Server, http: aiohttp.ClientSession) -> None:
    """Wait until a gateway answers."""
    for _ in range(600):
        try:
            await episode(server, http, asyncio.Semaphore(1))
        except (aiohttp.ClientError, KeyError):
            if server.process.poll() is not None:
                raise RuntimeError(f"{server.process.args!r} ended") from None
            await asyncio.sleep(0.5)
        else:
            return
    raise RuntimeError(f"{server.process.args!r} does not answer")


async def measure(servers: dict[str, Server], rounds: int) -> dict[str, list[float]]:
    """Return the CPU time per call of each gateway in each round, in ms."""
    found: dict[str, list[float]] = {name: [] for name in servers}
    places = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as http:
        for server in servers.values():
            if server.process is not servers[OURS].process:
                await ready(server, http)
        for number in range(-1, rounds):  # the first one warms up
            names = sorted(servers, reverse=bool(number % 2))
            for name in names[number % 3 :] + names[: number % 3]:
                server = servers[name]
                before = cpu_seconds(server.process.pid)
                await asyncio.gather(*(episode(server, http, places) for _ in range(EPISODES)))
                await server.close(http)
                used = cpu_seconds(server.process.pid) - before
                if number >= 0:
                    found[name].append(round(1000 * used / (EPISODES * CALLS), 3))
    return found


def ratio(peer: Sequence[float], ours: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios of the rounds, and its 95% t interval."""
    logs = [math.log(theirs / mine) for theirs, mine in zip(peer, ours, strict=True)]
    estimate = estimate_t(logs)
    mean, low, high = (math.exp(float(estimate[name] or 0.0)) for name in ("mean", "low", "high"))
    return mean, low, high


def table(record: dict[str, Any]) -> str:
    """Return the comparison as a table."""
    calls = record["cpu_ms_per_call"]
    lines = ["| gateway | CPU time per call | times gem-core's (95% interval) |", "|---|---|---|"]
    for name, values in calls.items():
        mean, low, high = ratio(values, calls[OURS])
        shown = "1" if name == OURS else f"{mean:.2f} ({low:.2f} to {high:.2f})"
        lines.append(f"| `{name}` {record['versions'].get(name, '')} | {median(values):.2f} ms | {shown} |")
    return "\n".join(lines)


def load_table(record: dict[str, Any]) -> str:
    """Return the load as a table."""
    row = record["load"]
    return (
        "| agents | calls | wall time | CPU time | calls open at once | memory before | peak | left open |\n"
        "|---|---|---|---|---|---|---|---|\n"
        f"| {row['agents']:,} | {row['agents'] * row['turns']:,} | {row['wall_s']:.0f} s "
        f"| {row['cpu_s']:.0f} s | {row['most_open']:,} | {row['start_mib']} MiB | {row['peak_mib']} MiB "
        f"| {row['tasks_left']} tasks, {row['sockets_left']} sockets |"
    )


def version_of(program: str, package: str) -> str:
    """Return the version of a package in the environment of a program."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    python = Path(program).with_name("python")
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measure, and write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--litellm", required=True, help="program of the package litellm[proxy]")
    parser.add_argument("--rllm", required=True, help="program of the package rllm-model-gateway")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RECORD)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        servers = start(stack, Path(name), args.litellm, args.rllm)
        began = time.perf_counter()
        calls = asyncio.run(measure(servers, args.rounds))
        wall = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as name:
        load = Path(name) / "load.json"
        command = [sys.executable, str(FOLDER / "gateway_load.py"), "--agents", str(args.agents)]
        subprocess.run([*command, "--out", str(load)], check=True, stdout=subprocess.DEVNULL)
        record = {
            "cpu_ms_per_call": calls,
            "wall_s": round(wall, 1),
            "versions": {
                "litellm": version_of(args.litellm, "litellm"),
                "rllm-model-gateway": version_of(args.rllm, "rllm-model-gateway"),
            },
            "load": json.loads(load.read_text()),
            "commit": records.commit(),
            "machine": records.processor(),
        }
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{table(record)}\n\n{load_table(record)}")


if __name__ == "__main__":
    main()
