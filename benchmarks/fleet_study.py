"""Measure a fleet of environments on a local Ray cluster, and write docs/results/fleet.jsonl.

    python benchmarks/fleet_study.py                    # measures the points that the record lacks
    python benchmarks/fleet_study.py --point 300 0      # one point and seed, prints it, records nothing
    python benchmarks/fleet_study.py --profile 10000    # prints the server's profile, records nothing
    python benchmarks/fleet_study.py --draw             # draws the figure and prints the table

Concurrent episodes of an environment that waits in every call (see fleet_server.py) run in Ray actors behind
`gem-core serve openenv --ray`; the load acts the moment it gets an answer. All of it shares the machine. The
ideal is the number of answers in the same time if only the environment took time, with the same durations, so
the efficiency contains no luck of the draw.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import pstats
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from fleet_server import LONGEST, MEDIAN, SIGMA, TURNS, durations
from openenv_load import Load, Player, connected, message
from openenv_study import commit, version, wait_until_up

from gem_core._util.files import write_atomically

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "docs" / "results" / "fleet.jsonl"
FIGURE = RECORD.with_suffix(".png")
EPISODES = (100, 300, 1000, 3000, 10_000)
SEEDS = (0, 1, 2)
SECONDS = 40.0
ACTORS = 2
LEAST = 0.8
"""Smallest efficiency."""
COLUMNS = {
    "rate": "{:,.0f}",
    "efficiency": "{:.1%}",
    "late_p50_ms": "{:,.0f}",
    "late_p99_ms": "{:,.0f}",
    "kb_per_episode": "{:.1f}",
    "cores_busy": "{:.2f}",
}
STEP = message("step", message="ls")


def seed_of(seed: int, session: int, episode: int) -> int:
    """Return the seed of an episode."""
    return (seed * 100_000 + session) * 1000 + episode


def ideal(seed: int, sessions: int, seconds: float) -> int:
    """Return the number of calls that end within `seconds` if only the environment takes time."""
    count = 0
    for session in range(sessions):
        now, episode = 0.0, 0
        while True:
            calls = durations(seed_of(seed, session, episode))
            for _ in range(TURNS + 1):
                now += next(calls)
                if now > seconds:
                    break
                count += 1
            else:
                episode += 1
                continue
            break
    return count


class FleetPlayer(Player):
    """A session that waits for `start` and then plays one episode after another."""

    def __init__(self, load: Load, index: int, seed: int) -> None:
        super().__init__(load, index)
        self.seed, self.episode, self.started = seed, 0, False

    def begin(self) -> None:
        if not self.started:
            self.started = True
            self.ready.set_result(None)
            return
        seed = seed_of(self.seed, self.index, self.episode)
        self.durations = durations(seed)
        self.send(message("reset", seed=seed))

    def send(self, frame: bytes) -> None:
        """Send a message."""
        self.write(frame)
        self.due = time.perf_counter() + next(self.durations)

    def receive(self, payload: bytes) -> None:
        if self.load.ended:
            return
        if b'"error"' in payload[:40]:
            self.load.fail(payload[:100].decode())
            return
        self.load.seconds.append(time.perf_counter() - self.due)
        if b'"done":true' in payload:
            self.episode += 1
            self.begin()
        else:
            self.send(STEP)


@contextlib.contextmanager
def serving(profile: str = "") -> Iterator[tuple[str, int]]:
    """Start the server and its Ray cluster; yield its URL and its process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="gem-fleet-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, str(HERE / "fleet_server.py"), str(port), str(ACTORS), folder]
        process = subprocess.Popen(
            [*command, *filter(None, [profile])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until_up(process, port)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait()


def roles(server: int) -> dict[str, list[int]]:
    """Return the ids of the processes: the server, its actors, and Ray's own."""
    parents: dict[int, int] = {}
    titles: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            titles[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    found: dict[str, list[int]] = {"server": [server], "actors": [], "ray": []}
    family = {server}
    for _ in range(5):  # generations
        family |= {pid for pid, parent in parents.items() if parent in family}
    for pid in family - {server}:
        found["actors" if titles.get(pid, "").startswith("ray::SessionActor") else "ray"].append(pid)
    return found


def use(pids: list[int]) -> tuple[float, float]:
    """Return CPU seconds and memory in KB (shared pages divided by their users) of processes."""
    cpu = memory = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            cpu += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            memory += sum(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return cpu, memory


async def play(url: str, sessions: int, seed: int, seconds: float, server: int) -> dict[str, Any]:
    """Play for a while and return the measurements."""
    load = Load()
    groups = roles(server)
    idle = {role: use(pids) for role, pids in groups.items()}
    gate = asyncio.Semaphore(64)

    async def connect(index: int) -> FleetPlayer:
        async with gate:
            player: FleetPlayer = await connected(url, lambda: FleetPlayer(load, index, seed))
            return player

    players = await asyncio.gather(*map(connect, range(sessions)))
    before, own, start = (
        {r: use(pids) for r, pids in groups.items()},
        time.process_time(),
        time.perf_counter(),
    )
    for player in players:
        player.begin()
    await asyncio.sleep(seconds - (time.perf_counter() - start))
    answers, took = len(load.seconds), time.perf_counter() - start
    after, own = {r: use(pids) for r, pids in groups.items()}, time.process_time() - own
    load.ended = True
    delays = sorted(load.seconds[:answers])
    for player in players:
        player.transport.disconnect()
    await asyncio.sleep(0.5)
    best = ideal(seed, sessions, took)
    cpu = {role: after[role][0] - before[role][0] for role in groups} | {"load": own}
    kilobytes = sum(after[role][1] - idle[role][1] for role in ("server", "actors"))
    return {
        "episodes": sessions,
        "seed": seed,
        "seconds": round(took, 2),
        "answers": answers,
        "ideal": best,
        "efficiency": round(answers / best, 4),
        "late_p50_ms": round(1000 * delays[len(delays) // 2], 1),
        "late_p99_ms": round(1000 * delays[int(len(delays) * 0.99)], 1),
        "cpu_us_per_answer": {role: round(1e6 * value / answers, 1) for role, value in cpu.items()},
        "kb_per_episode": round(kilobytes / sessions, 2),
        "cores_busy": round(sum(cpu.values()) / took, 2),
        "failures": load.failures,
    }


def measure(sessions: int, seed: int, seconds: float = SECONDS) -> dict[str, Any]:
    """Return the measurements of one point."""
    with serving() as (url, server):
        asyncio.run(play(url, 16, len(SEEDS), 3.0, server))  # warm-up
        return asyncio.run(play(url, sessions, seed, seconds, server))


def profile(sessions: int) -> None:
    """Print where the server spends its time with this many episodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "profile")
        with serving(path) as (url, server):
            print(json.dumps(asyncio.run(play(url, sessions, 0, SECONDS, server))))
        pstats.Stats(path).sort_stats("tottime").print_stats(25)


def read_record() -> list[dict[str, Any]]:
    """Return the recorded points; none without a record."""
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Return the table of medians over the seeds in Markdown."""
    lines = [
        "| episodes | answers/s | of the ideal | late p50 (ms) | late p99 (ms) | KB per episode | cores |",
        "|---|---|---|---|---|---|---|",
    ]
    for episodes in sorted({run["episodes"] for run in runs}):
        points = [run for run in runs if run["episodes"] == episodes]
        figures = {key: median(point[key] for point in points) for key in COLUMNS}
        cells = [form.format(figures[key]) for key, form in COLUMNS.items()]
        lines.append(f"| {episodes:,} | {' | '.join(cells)} |")
    return lines


def draw(runs: list[dict[str, Any]]) -> None:
    """Draw efficiency, and CPU time per answer by process, over the number of episodes."""
    from gem_lab.train._report import COLORS, new_figure, save_figure

    figure, (left, right) = new_figure(2)
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xlabel("concurrent episodes")
    for run in runs:
        left.plot(run["episodes"], run["efficiency"], "o", color=COLORS[0], alpha=0.5)
    numbers = sorted({run["episodes"] for run in runs})
    middle = [median(run["efficiency"] for run in runs if run["episodes"] == n) for n in numbers]
    left.plot(numbers, middle, color=COLORS[0], linewidth=2)
    left.axhline(LEAST, color="gray", linestyle="--", linewidth=1)
    left.set_ylim(0, 1.05)
    left.set_title("answers, as a share of the ideal", loc="left", fontsize=11)
    base = [0.0] * len(numbers)
    for color, role in zip(COLORS, ("server", "actors", "ray"), strict=True):
        cpu = [
            median(run["cpu_us_per_answer"][role] for run in runs if run["episodes"] == n) for n in numbers
        ]
        top = [low + value for low, value in zip(base, cpu, strict=True)]
        right.fill_between(numbers, base, top, color=color, alpha=0.7, label=role)
        base = top
    right.set_ylim(bottom=0)
    right.set_title("CPU time per answer (µs, summed)", loc="left", fontsize=11)
    right.legend(frameon=False)
    save_figure(figure, FIGURE)


def record() -> list[dict[str, Any]]:
    """Measure the points that the record lacks, and return all."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "ray": version("ray")}
    config = {
        "median_s": MEDIAN, "sigma": SIGMA, "longest_s": LONGEST, "turns": TURNS, "actors": ACTORS,
    }  # fmt: skip
    head = {"command": "python benchmarks/fleet_study.py", "commit": commit(), "machine": machine}
    for seed in SEEDS:
        for episodes in EPISODES:
            runs = read_record()
            if not any((run["episodes"], run["seed"]) == (episodes, seed) for run in runs):
                point = measure(episodes, seed)
                point["rate"] = round(point["answers"] / point["seconds"], 1)
                print(json.dumps(point), flush=True)
                runs.append({**point, **head, "config": config})
                write_atomically(RECORD, [json.dumps(run) + "\n" for run in runs])
    return read_record()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--point", nargs=2, type=int, metavar=("EPISODES", "SEED"))
    parser.add_argument("--profile", type=int, metavar="EPISODES")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if args.point:
        print(json.dumps(measure(*args.point), indent=1))
        return
    if args.profile:
        profile(args.profile)
        return
    runs = read_record() if args.draw else record()
    draw(runs)
    print("\n".join(table(runs)))
    for run in runs:
        if run["efficiency"] < LEAST or run["failures"]:
            sys.exit(
                f"{run['episodes']} episodes, seed {run['seed']}: {run['efficiency']}, {run['failures']}"
            )


if __name__ == "__main__":
    main()
