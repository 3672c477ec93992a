"""Compare `gem-core serve openenv` with OpenEnv's own server, and write docs/results/openenv-server.json.

    .nox/openenv/bin/pip install picows websockets   # after `nox -s openenv`; the load needs picows
    .nox/openenv/bin/python benchmarks/openenv_study.py
    .nox/openenv/bin/python benchmarks/openenv_study.py --quick    # one short round, writes nothing

The same game, the same load, the same protocol; the server has one core and the load another one. Rounds
alternate between the servers, and the table shows medians. Besides steps per second, it shows steps per
second of CPU time of the server, which other load on the machine changes least. ``websockets`` and ``picows``
serve our sessions with other libraries, and without the checks and limits of our servers. OpenEnv does not
depend on uvloop; if it is installed, all servers and the load run on it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "docs" / "results" / "openenv-server.json"
OURS, THEIRS, THEIRS_ASYNC = "gem-core", "openenv", "openenv-async"
LIBRARIES = ("websockets", "picows")
SESSIONS = (64, 2048)
HELD = 10_000
CORES = sorted(os.sched_getaffinity(0))[:2]

LIMITS = (
    ("steps/s against OpenEnv", THEIRS, "steps_per_s", 3.0),
    ("steps/s against OpenEnv with async environments", THEIRS_ASYNC, "steps_per_s", 1.5),
    ("steps per CPU second against OpenEnv", THEIRS, "steps_per_cpu_s", 3.0),
    ("steps per CPU second against OpenEnv with async environments", THEIRS_ASYNC, "steps_per_cpu_s", 1.5),
)
"""Smallest ratios, at each number of sessions."""
P99_RATIO = 0.5
"""Largest ratio of the 99th percentiles at the largest number of sessions."""
KB_PER_SESSION = 25.0


@contextlib.contextmanager
def serving(name: str) -> Iterator[tuple[str, int]]:
    """Start a server on the first core; yield its URL and its process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if name == OURS:
        command = ["-m", "gem_lab", "serve", "openenv", "game:GuessTheNumber-v0-easy", "--port", str(port)]
    else:
        command = [str(HERE / "openenv_servers.py"), name, str(port)]
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        os.sched_setaffinity(process.pid, CORES[:1])
        wait_until_up(process, port)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a server accepts connections."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"a server ended with exit code {process.returncode}")
        try:
            opener.open(f"http://127.0.0.1:{port}/health", timeout=2).close()
            return
        except urllib.error.HTTPError:  # a WebSocket library without pages
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("a server did not start")


def load(url: str, sessions: int, seconds: float, pid: int) -> dict[str, Any]:
    """Run the load on the second core and return its measurements."""
    command = [sys.executable, str(HERE / "openenv_load.py"), url, str(sessions), str(seconds), str(pid)]
    cores = set(CORES[-1:])
    process = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    figures: dict[str, Any] = json.loads(process.stdout)
    return figures


def measure(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return the measurements of every run."""
    names = [OURS, THEIRS, THEIRS_ASYNC, *(name for name in LIBRARIES if importlib.util.find_spec(name))]
    runs = []
    for index in range(rounds):
        for name in names if index % 2 == 0 else reversed(names):
            with serving(name) as (url, pid):
                load(url, 16, 0.5, pid)  # warm-up
                for sessions in SESSIONS:
                    figures = {"server": name, "round": index, **load(url, sessions, seconds, pid)}
                    runs.append(figures)
                    print(json.dumps(figures), flush=True)
    return runs


def hold() -> dict[str, Any]:
    """Return the measurements of our server with many sessions that step once."""
    with serving(OURS) as (url, pid):
        load(url, 16, 0.5, pid)
        return load(url, HELD, 0.0, pid)


def median(runs: list[dict[str, Any]], server: str, sessions: int, key: str) -> float:
    """Return the median of a measurement over rounds."""
    values = [run[key] for run in runs if (run["server"], run["sessions"]) == (server, sessions)]
    return float(statistics.median(values))


def ratios(runs: list[dict[str, Any]], key: str, server: str, sessions: int) -> float:
    """Return the median over rounds of our measurement divided by the one of `server` in the same round."""
    values = {(run["server"], run["round"]): run[key] for run in runs if run["sessions"] == sessions}
    rounds = {index for _, index in values}
    return float(statistics.median(values[OURS, index] / values[server, index] for index in rounds))


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of medians in Markdown."""
    names = ("server", "sessions", "steps/s", "steps per CPU second", "p50 (ms)", "p99 (ms)", "threads")
    lines = [f"| {' | '.join(names)} | memory (MB) |", "|---|---|---|---|---|---|---|---|"]
    keys = ("steps_per_s", "steps_per_cpu_s", "p50_ms", "p99_ms", "threads", "rss_mb")
    for name in dict.fromkeys(run["server"] for run in runs):
        for sessions in SESSIONS:
            cells = [f"{median(runs, name, sessions, key):,.0f}" for key in keys]
            lines.append(f"| {name} | {sessions:,} | {' | '.join(cells)} |")
    return lines


def report(runs: list[dict[str, Any]], held: dict[str, Any]) -> bool:
    """Print the table and the limits; return whether all limits are met."""
    print("\n".join(table(runs)))
    checks = [(f"{text}, {n} sessions", ratios(runs, key, peer, n), minimum, True)
              for text, peer, key, minimum in LIMITS for n in SESSIONS]  # fmt: skip
    checks += [
        ("p99 against OpenEnv", ratios(runs, "p99_ms", THEIRS, SESSIONS[-1]), P99_RATIO, False),
        (f"KB per session with {HELD:,} sessions", held["kb_per_session"], KB_PER_SESSION, False),
        ("failures", float(sum(len(run["failures"]) for run in [*runs, held])), 0.0, False),
    ]
    met = True
    for text, value, limit, at_least in checks:
        fine = value >= limit if at_least else value <= limit
        met = met and fine
        print(f"{'ok  ' if fine else 'MISS'} {text}: {value:.2f} ({'>=' if at_least else '<='} {limit:g})")
    print(f"{held['held']:,} of {HELD:,} sessions held")
    return met and held["held"] == HELD


def main() -> None:
    """Measure, print, and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--quick", action="store_true", help="one round of two seconds, not recorded")
    args = parser.parse_args()
    runs = measure(1 if args.quick else args.rounds, 2.0 if args.quick else args.seconds)
    held = hold()
    print(json.dumps(held))
    met = report(runs, held)
    if not args.quick:
        versions = {
            name: version(name)
            for name in ("openenv", "uvicorn", "aiohttp", "uvloop", "websockets", "picows")
        }
        machine = {"cores": len(CORES), "python": platform.python_version(), "versions": versions}
        head = {"command": "python benchmarks/openenv_study.py", "commit": commit(), "machine": machine}
        lines = ",\n  ".join(json.dumps(run) for run in runs)
        text = json.dumps({**head, "held": held}, indent=1).removesuffix("\n}")
        RECORD.write_text(f'{text},\n "runs": [\n  {lines}\n ]\n}}\n')
    sys.exit(0 if met else 1)


def commit() -> str:
    """Return the short hash of the measured commit."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.check_output(command, text=True, cwd=HERE).strip()


def version(name: str) -> str | None:
    """Return the version of an installed package; None if it is missing."""
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


if __name__ == "__main__":
    main()
