"""The Python tool against gem-llm's: programs per second, same interpreter, a child process per program."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common
from gem.tools.python_code_tool import PythonCodeTool

from gem_envs.sandbox._namespace import Namespace

SMALL = "print(1+1)"
NUMPY = "import numpy as np\nprint(np.arange(10).sum())"
BUSY = "total = 0\nfor number in range(300_000):\n    total += number\nprint(total)"
CALLERS = 64


def ours(sandbox: Namespace, code: str, answer: str, count: int) -> Callable[[], int]:
    """Return work that runs `code` `count` times, each in a new child process."""

    def work() -> int:
        for _ in range(count):
            if sandbox.run(code).stdout != answer:
                raise RuntimeError("the sandbox gave a wrong answer")
        return count

    return work


def peer(code: str, answer: str, count: int) -> Callable[[], int]:
    """Return the same work for gem-llm's tool with its defaults, `python -c` without isolation."""
    tool = PythonCodeTool()

    def work() -> int:
        for _ in range(count):
            _, failed, observation, _ = tool.execute_action(f"<python>{code}</python>")
            if failed or answer.strip() not in observation:
                raise RuntimeError(f"gem-llm's tool failed: {observation}")
        return count

    return work


def many(sandbox: Namespace, pool: ThreadPoolExecutor, code: str, count: int) -> Callable[[], int]:
    """Return the work of `CALLERS` concurrent callers."""

    def work() -> int:
        list(pool.map(lambda _: sandbox.run(code), range(count)))
        return count

    return work


def latencies(sandbox: Namespace, count: int) -> list[float]:
    """Return the milliseconds of each of `count` programs, run one after the other."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        sandbox.run(SMALL)
        times.append(1000 * (time.perf_counter() - start))
    return sorted(times)


def memory(pids: list[int]) -> float:
    """Return the proportional set size in MB of the fork servers and their descendants."""
    total = 0
    while pids:
        pid = pids.pop()
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1])
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        except (OSError, StopIteration):
            continue
    return total / 1024


def run(quick: bool) -> list[common.Result]:
    # gem-llm runs "python": put this interpreter first, and work in a temporary folder.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    seconds, rounds = (0.1, 1) if quick else (0.7, 7)
    note = "wall clock; peer: gem-llm's tool, no isolation; ours: level namespace"
    results = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        small, numeric = Namespace(), Namespace(packages=("numpy",))
        pair = common.compare(
            ours(small, SMALL, "2\n", 20), peer(SMALL, "2\n", 3), seconds=seconds, rounds=rounds, clock="wall"
        )
        results.append(common.Result("tools: print(1+1)", *pair, unit="runs/s", at_least=8, note=note))
        pair = common.compare(
            ours(numeric, NUMPY, "45\n", 20),
            peer(NUMPY, "45\n", 2),
            seconds=seconds,
            rounds=rounds,
            clock="wall",
        )
        results.append(common.Result("tools: import numpy", *pair, unit="runs/s", at_least=4, note=note))
        with ThreadPoolExecutor(CALLERS) as pool:
            pair = common.compare(
                many(small, pool, SMALL, 2 * CALLERS), ours(small, SMALL, "2\n", 20),
                seconds=seconds, rounds=rounds, clock="wall",
            )  # fmt: skip
            note = "wall clock; peer: one caller, whose children are started in advance on the other core"
            results.append(common.Result(f"tools: {CALLERS} callers", *pair, unit="runs/s", note=note))
            pair = common.compare(
                many(small, pool, BUSY, CALLERS), ours(small, BUSY, "44999850000\n", 20),
                seconds=seconds, rounds=rounds, clock="wall",
            )  # fmt: skip
        note = "wall clock; programs that compute; peer: one caller, two cores"
        name = f"tools: {CALLERS} callers, computing"
        results.append(common.Result(name, *pair, unit="runs/s", at_least=1.5, note=note))
        times = latencies(small, 50 if quick else 1000)
        results.append(common.Result("tools: median of a run", statistics.median(times), unit="ms"))
        results.append(common.Result("tools: p99 of a run", times[int(0.99 * len(times))], unit="ms"))
        results.append(common.Result("tools: memory at rest", memory(small.processes()), unit="MB"))
        results.append(common.Result("tools: memory, numpy", memory(numeric.processes()), unit="MB"))
        small.close()
        numeric.close()
        os.chdir("/")
    return results


if __name__ == "__main__":
    common.main(run)
