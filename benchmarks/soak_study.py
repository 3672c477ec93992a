"""Hostile programs, SQL, and clients next to 64 honest episodes: rewards, memory, and descriptors.

    python benchmarks/soak_study.py --minutes 30 --out docs/results/soak.json

An honest episode follows the oracle, or gives a wrong answer; it has to earn what the same episode earned
alone, before the load. Memory and descriptors of the process that steps the episodes and of the server are
read after two minutes of load and after the whole run, both times with everything closed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import records

import gem_core
from gem_core.errors import GemError

HONEST = 64
SERVED = "game:GuessTheNumber-v0"
LOCAL = ("code:SmallTasks-v0", "database:Shop-v0", "terminal:Files-v0", "math:FileArithmetic-v0")
WRONG = {"terminal:Files-v0": "```bash\nsubmit\n```"}
"""Actions that earn nothing, by environment; elsewhere an answer that no item has."""
CALL = "<tool_call>{}</tool_call>"
PROGRAMS = (
    "import os\nwhile True: os.fork()",
    "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "while True: pass",
    "import time\ntime.sleep(1000)",
    "import ctypes\nL = ctypes.CDLL(None)\nprint(sum(L.semget(0, 32000, 0o1600) >= 0 for _ in range(20)))",
    "import ctypes\nL = ctypes.CDLL(None)\nprint(sum(L.msgget(0, 0o1600) >= 0 for _ in range(200)))",
    "import socket\nkept = [socket.socketpair() for _ in range(30)]\nfor a, b in kept:\n"
    "    a.setblocking(False)\n    try:\n        while True: a.send(b'x' * 65536)\n    except OSError: pass",
    "import os, signal\nos.kill(0, signal.SIGKILL)",
    "import os\nos.write(1, b'gem-core-result:' + b'[' * 100000)\nos._exit(0)",
    "import os\nfor i in range(10**6): open(f'f{i}', 'w').close()",
    "import threading, time\nfor _ in range(10**4): threading.Thread(target=time.sleep, args=(100,)).start()",
    "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
)
LONG_A, LONG_B = "replace(hex(zeroblob(20000)),'00','a')", "replace(hex(zeroblob(19999)),'00','b')||'a'"
COUNT = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c{}) SELECT {} FROM c"
STATEMENTS = (
    ("query", f"SELECT length(trim({LONG_A},{LONG_B}))"),
    ("query", COUNT.format("", "max(n)")),
    ("query", COUNT.format(" WHERE n<100000", "zeroblob(1000)")),
    ("query", "SELECT randomblob(1000000000)"),
    ("execute", "CREATE VIEW zz AS " + COUNT.format(" WHERE n<300", "n, zeroblob(1000000)")),
    ("execute", "CREATE TEMP TABLE big AS " + COUNT.format(" WHERE n<400", "randomblob(1000000) AS b")),
    ("execute", "CREATE TABLE big2 AS " + COUNT.format(" WHERE n<400", "randomblob(1000000) AS b")),
    ("query", "SELECT a.*, b.*, c.* FROM sqlite_master a, sqlite_master b, sqlite_master c"),
)
REQUESTS = (
    b"POST /reset HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 8388608\r\n\r\n" + b"x" * 100_000,
    b"GET /ws HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n",
    b"GET //[ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000,
    b"POST /step HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    b"G",
    b"\x16\x03\x01\x02\x00\x01\x00",
)


def play(env: gem_core.Env, seed: int, wrong: bool, label: str) -> float:
    """Return the return of an episode of the oracle, or of one with a wrong answer."""
    env.reset(seed=seed)
    total, ended = 0.0, False
    while not ended:
        action = WRONG.get(label, "\\boxed{no such answer}") if wrong else env.oracle_action()
        assert action is not None
        _, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    return total


def play_served(env: gem_core.Env, seed: int) -> float:
    """Return the return of a fixed episode of the served environment."""
    env.reset(seed=seed)
    total, ended, guess = 0.0, False, 1
    while not ended:
        _, reward, terminated, truncated, _ = env.step(f"\\boxed{{{guess}}}")
        total, ended, guess = total + float(reward), terminated or truncated, guess % 50 + 7
    return total


class Soak:
    """Threads that play until they are told to stop.

    Attributes:
        counts: Number of finished pieces of work by kind.
        errors: Number of errors by text; of honest episodes only.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.stop = threading.Event()
        self._expected = self._alone()

    def _alone(self) -> dict[tuple[str, int, bool], float]:
        """Return what each honest episode earns without the load."""
        found = {}
        for label in LOCAL:
            with closing(gem_core.make(label)) as env:
                for seed in range(4):
                    for wrong in (False, True):
                        found[label, seed, wrong] = play(env, seed, wrong, label)
        with closing(gem_core.make(SERVED)) as env:
            for seed in range(4):
                found["served", seed, False] = play_served(env, seed)
        if not any(found.values()) or not all(found[label, 0, False] == 1 for label in LOCAL):
            raise SystemExit(f"the oracle does not earn 1 alone: {found}")
        return found

    def honest(self, index: int) -> None:
        """Play honest episodes, one environment per thread."""
        choices = random.Random(index)
        served = index % (len(LOCAL) + 1) == len(LOCAL)
        label = f"openenv:{self.address}" if served else LOCAL[index % (len(LOCAL) + 1)]
        with closing(gem_core.make(label)) as env:
            while not self.stop.is_set():
                seed, wrong = choices.randrange(4), not served and choices.random() < 0.3
                try:
                    earned = play_served(env, seed) if served else play(env, seed, wrong, label)
                except GemError as error:
                    self.errors[f"{label}: {error}"] += 1
                    continue
                expected = self._expected["served" if served else label, seed, wrong]
                if earned != expected:
                    self.errors[f"{label}: seed {seed} earned {earned}, alone {expected}"] += 1
                self.counts[f"honest {label.partition(':')[0]}"] += 1
                self.stop.wait(1)

    def programs(self, index: int) -> None:
        """Run hostile programs in the Python tool and the grader of programs."""
        choices = random.Random(index)
        tool = "tools(tools='python(memory_mb=64)')"
        with (
            closing(gem_core.make("math:Arithmetic-v0", wrappers=tool)) as env,
            closing(gem_core.make("code:SmallTasks-v0")) as graded,
        ):
            while not self.stop.is_set():
                program = choices.choice(PROGRAMS)
                self._attack("tool", env, f"<python>{program}</python>")
                if self._attack("grader", graded, f"```python\n{program}\n```"):
                    self.errors[f"a hostile program earned a reward: {program[:60]!r}"] += 1

    def statements(self, index: int) -> None:
        """Send hostile SQL, and have the grader look at what it left."""
        choices = random.Random(index)
        with closing(gem_core.make("database:Shop-v0")) as env:
            while not self.stop.is_set():
                name, sql = choices.choice(STATEMENTS)
                call = CALL.format(json.dumps({"name": name, "arguments": {"sql": sql}}))
                if self._attack("sql", env, call, "\\boxed{done}"):
                    self.errors[f"hostile SQL earned a reward: {sql[:60]!r}"] += 1

    def clients(self, index: int) -> None:
        """Connect to the server and send what no client should."""
        choices = random.Random(index)
        host, _, port = self.address.removeprefix("http://").partition(":")
        while not self.stop.is_set():
            opened = []
            for _ in range(20):
                connection = socket.create_connection((host, int(port)), timeout=5)
                opened.append(connection)
                try:
                    connection.sendall(choices.choice(REQUESTS))
                except OSError:  # the server has closed the connection
                    self.counts["closed at once"] += 1
            self.stop.wait(2)
            for connection in opened:
                connection.close()
            self.counts["client"] += len(opened)

    def _attack(self, kind: str, env: gem_core.Env, *actions: str) -> float:
        earned = 0.0
        try:
            env.reset(seed=0)
            for action in actions:
                _, reward, terminated, truncated, _ = env.step(action)
                earned += max(float(reward), 0.0)
                if terminated or truncated:
                    break
        except GemError as error:
            self.counts[f"{kind}: {type(error).__name__}"] += 1
        self.counts[kind] += 1
        return earned

    def run(self, seconds: float, watch: Callable[[float], None]) -> None:
        """Play with all threads for some time."""
        self.stop.clear()
        works = [(self.honest, HONEST), (self.programs, 4), (self.statements, 4), (self.clients, 4)]
        threads = [threading.Thread(target=work, args=(index,)) for work, n in works for index in range(n)]
        for thread in threads:
            thread.start()
        start = time.monotonic()
        while (passed := time.monotonic() - start) < seconds:
            watch(passed)
            self.stop.wait(min(seconds - passed, 30))
            if not all(thread.is_alive() for thread in threads):
                self.errors["a thread ended"] += 1
                break
        self.stop.set()
        for thread in threads:
            thread.join()


def usage(process: int) -> dict[str, int]:
    """Return the memory in MB, descriptors, and threads of a process, and its number of descendants."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    values = dict(line.split(":", 1) for line in status.splitlines())
    return {
        "rss_mb": int(values["VmRSS"].split()[0]) // 1024,
        "descriptors": len(os.listdir(f"/proc/{process}/fd")),
        "threads": int(values["Threads"]),
        "descendants": sum(1 for _ in descendants(process)),
    }


def descendants(process: int) -> Iterator[int]:
    """Yield the processes below a process, without those that end meanwhile."""
    try:
        tasks = os.listdir(f"/proc/{process}/task")
    except OSError:
        return
    for task in tasks:
        try:
            children = Path(f"/proc/{process}/task/{task}/children").read_text(encoding="ascii")
        except OSError:
            continue
        for child in map(int, children.split()):
            yield child
            yield from descendants(child)


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """Serve the environment; yield the address and the process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gem_lab", "serve", "openenv", SERVED, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(100):
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}", server.pid
        finally:
            server.terminate()


def main() -> None:
    """Run the load, and write what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30, help="length of the run")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    args = parser.parse_args()
    samples: list[dict[str, Any]] = []
    with served() as (address, server):
        soak = Soak(address)

        def watch(seconds: float) -> None:
            own, other = usage(os.getpid()), usage(server)
            samples.append({"s": round(seconds), "own": own, "server": other, "done": dict(soak.counts)})
            sys.stderr.write(json.dumps(samples[-1]) + "\n")

        def rest() -> dict[str, dict[str, int]]:
            gc.collect()
            time.sleep(5)
            return {"own": usage(os.getpid()), "server": usage(server)}

        soak.run(min(120, args.minutes * 60), watch)
        before = rest()
        soak.counts.clear()
        soak.run(args.minutes * 60, watch)
        after = rest()
    result = {
        "command": " ".join(["python", *sys.argv]),
        "commit": records.commit(),
        "machine": records.machine(),
        "minutes": args.minutes,
        "before": before,
        "after": after,
        "counts": dict(soak.counts),
        "errors": dict(soak.errors),
        "samples": samples,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    del result["samples"]
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    sys.exit(bool(soak.errors))


if __name__ == "__main__":
    main()
