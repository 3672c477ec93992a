"""What bounded resources do for ten times more callers than they have places.

    python benchmarks/overload_study.py --out docs/results/overload.json

Each call takes a place for half a second, and its caller waits with a limit that is shorter than the queue:
callers ask again and again, first as many as there are places, then ten times as many, then as many as
before. The rate is the number of calls that succeed in time, per second. Threads are those of the whole
process, beyond those that it had before the resource was used.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import records

from gem_chat.tools import make_tools
from gem_core import Env
from gem_core._core import ResetResult, StepResult
from gem_core._util.threads import ENV_THREADS
from gem_core.errors import EnvError
from gem_core.rollout._calls import EnvCalls
from gem_envs._rg import trusted
from gem_envs.sandbox import open_sandbox
from gem_envs.sandbox._calls import Calls
from gem_envs.sandbox._program import cores
from gem_envs.tools import Tools
from gem_lab._engines.rate_limits import RateLimit

WORK = 0.5
"""Seconds that a call takes."""
LIMIT = 2.5
"""Seconds that a caller waits; the queue of the overload takes nine times `WORK`."""
FACTOR = 10
SLEEP = f"import time; time.sleep({WORK})"
EXAMPLE = f"{sys.executable} -m gem_envs.tools.mcp.example"


class Late(Exception):
    """Raised when a call does not succeed in time."""


Call = Callable[[], Awaitable[object]]


class Resource(NamedTuple):
    """A bounded resource.

    Attributes:
        places: Number of places, or of callers that use all of a rate.
        expected: Calls per second that the places allow.
        caller: Makes the call of one caller.
    """

    places: int
    expected: float
    caller: Callable[[], Call]


class Step(Env):
    """An environment whose step does some work in a thread."""

    blocking = True

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def reset(self, seed: int | None = None, *, options: Any = None) -> ResetResult:
        self.begin_episode(seed)
        return "", {}

    def step(self, action: str) -> StepResult:
        self._work()
        return "", 1.0, False, False, {}


def steps(work: Callable[[], object], limit: float = LIMIT) -> Callable[[], Call]:
    """Return a caller that takes steps with ``step_timeout``."""

    def caller() -> Call:
        calls = EnvCalls(Step(work), None, limit)
        calls._env.reset(0)

        async def call() -> None:
            try:
                await calls.step("")
            except EnvError as error:
                raise Late from error

        return call

    return caller


def tool_calls(tools: str, action: Callable[[], str]) -> Callable[[], Call]:
    """Return a caller that calls a tool with ``tools(timeout=)``."""
    made = make_tools(tools)

    def caller() -> Call:
        env = Tools(Step(lambda: None), tools=made, timeout=LIMIT, max_tool_uses=None)
        env.reset(seed=0)

        async def call() -> None:
            *_, info = await env.astep(action())
            if not info["tool_results"][0]["ok"]:
                raise Late

        return call

    return caller


# -- the resources -----------------------------------------------------------------------------


@asynccontextmanager
async def threads() -> AsyncIterator[Resource]:
    places = ENV_THREADS.size
    yield Resource(places, places / WORK, steps(lambda: time.sleep(WORK)))


@asynccontextmanager
async def sandbox() -> AsyncIterator[Resource]:
    where = open_sandbox("namespace")
    where.run("")
    places = 4 * cores()
    yield Resource(places, places / WORK, steps(lambda: where.run(SLEEP)))


@asynccontextmanager
async def own_process() -> AsyncIterator[Resource]:
    where = open_sandbox("process")
    places = 4 * cores()
    yield Resource(places, places / WORK, steps(lambda: where.run(SLEEP)))


@asynccontextmanager
async def grader() -> AsyncIterator[Resource]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "grader.py")
        file.write_text(
            f"import time\ndef warm_up(): pass\ndef grade():\n    time.sleep({WORK})\n    return 1\n"
        )
        calls = Calls(file, ())
        calls("grade")
        places = 4 * min(2, cores())
        yield Resource(places, places / WORK, steps(lambda: calls("grade")))
        calls.close()


@asynccontextmanager
async def puzzle() -> AsyncIterator[Resource]:
    trusted.call("time:sleep", 0.01)
    places = trusted._most
    yield Resource(places, places / WORK, steps(lambda: trusted.call("time:sleep", WORK)))
    trusted.close_workers()


@asynccontextmanager
async def python_tool() -> AsyncIterator[Resource]:
    places = 4 * cores()
    yield Resource(
        places,
        places / WORK,
        tool_calls("python(packages=(), level='namespace')", lambda: f"<python>{SLEEP}</python>"),
    )


@asynccontextmanager
async def search() -> AsyncIterator[Resource]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(WORK)
            found = [{"document": {"id": "1", "contents": "a\nb"}, "score": 1.0}]
            body = json.dumps({"result": [found]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that left."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tool = f"search(backend='server', url='http://127.0.0.1:{server.server_port}')"
    queries = iter(range(10**9))

    yield Resource(8, 8 / WORK, tool_calls(tool, lambda: f"<search>query {next(queries)}</search>"))
    server.shutdown()


@asynccontextmanager
async def mcp() -> AsyncIterator[Resource]:
    from gem_envs.tools.mcp import close_pools

    tool = f"mcp(command='{EXAMPLE}', concurrency=8)"
    call = "<tool_call>" + json.dumps({"name": "wait", "arguments": {"seconds": WORK}}) + "</tool_call>"
    yield Resource(8, 8 / WORK, tool_calls(tool, lambda: call))
    await asyncio.to_thread(close_pools)


@asynccontextmanager
async def rate_limit() -> AsyncIterator[Resource]:
    limit = RateLimit(60 * 100)

    def caller() -> Call:
        async def call() -> None:
            try:
                await asyncio.wait_for(limit.wait(1), 0.1)
            except asyncio.TimeoutError as error:
                raise Late from error

        return call

    yield Resource(5, 100, caller)


RESOURCES = {
    "threads of environments": threads,
    "sandbox, level namespace": sandbox,
    "sandbox, level process": own_process,
    "fork servers of a grader": grader,
    "workers of puzzles": puzzle,
    "tool `python`": python_tool,
    "tool `search`, a server": search,
    "MCP session": mcp,
    "rate limit of an endpoint": rate_limit,
}


# -- the load ----------------------------------------------------------------------------------


async def load(resource: Resource, callers: int, seconds: float) -> tuple[float, int]:
    """Return the calls per second that succeed, and the largest number of threads."""
    succeeded, most = 0, 0
    counting, over = False, False

    async def ask() -> None:
        nonlocal succeeded
        call = resource.caller()
        while not over:  # `asyncio.wait_for` may lose a cancel
            with contextlib.suppress(Late):
                await call()
                succeeded += counting

    tasks = [asyncio.ensure_future(ask()) for _ in range(callers)]
    await asyncio.sleep(2 * WORK)
    counting, end = True, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, threading.active_count())
        await asyncio.sleep(0.05)
    rate, over = succeeded / seconds, True
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise SystemExit(f"a caller ended: {result!r}")
    return rate, most


async def measure(name: str, seconds: float) -> dict[str, Any]:
    """Return the row of a resource."""
    before = threading.active_count()
    async with RESOURCES[name]() as resource:
        many = FACTOR * resource.places
        alone, threads_alone = await load(resource, resource.places, seconds)
        under, threads_under = await load(resource, many, seconds)
        after, _ = await load(resource, resource.places, seconds)
    return {
        "resource": name,
        "places": resource.places,
        "allowed_per_s": round(resource.expected, 1),
        "callers": many,
        "before_per_s": round(alone, 2),
        "overload_per_s": round(under, 2),
        "recovery_per_s": round(after, 2),
        "threads_before": threads_alone - before,
        "threads_overload": threads_under - before,
        "seconds": seconds,
        "commit": records.commit(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    lines = [
        "| resource | places | callers | calls/s without overload | with overload | afterwards | threads |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += (
        f"| {row['resource']} | {row['places']} | {row['callers']} | {row['before_per_s']:.1f} "
        f"| {row['overload_per_s']:.1f} | {row['recovery_per_s']:.1f} "
        f"| {row['threads_before']}, {row['threads_overload']} |"
        for row in rows
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, and write what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement")
    parser.add_argument(
        "--only", nargs="*", default=[], help="parts of names; the file keeps its rows of other resources"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    args = parser.parse_args()
    rows = []
    for name in RESOURCES:
        if not args.only or any(part in name for part in args.only):
            rows.append(asyncio.run(measure(name, args.seconds)))
            sys.stderr.write(json.dumps(rows[-1]) + "\n")
    if not rows:
        parser.error(f"--only: expected parts of these names: {', '.join(RESOURCES)}")
    done = {row["resource"]: row for row in rows}
    if args.only and args.out and args.out.exists():
        done = {row["resource"]: row for row in json.loads(args.out.read_text())["rows"]} | done
    result: dict[str, Any] = {
        "command": "python benchmarks/overload_study.py",
        "machine": records.machine(),
        "work_s": WORK,
        "limit_s": LIMIT,
        "rows": [done[name] for name in RESOURCES if name in done],
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(table(result["rows"]) + "\n")
    slow = [row["resource"] for row in rows if row["overload_per_s"] < 0.8 * row["before_per_s"]]
    slow += [row["resource"] for row in rows if row["recovery_per_s"] < 0.8 * row["before_per_s"]]
    sys.exit(f"slower by more than a fifth: {', '.join(slow)}" if slow else 0)


if __name__ == "__main__":
    main()
