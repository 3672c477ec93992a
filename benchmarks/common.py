"""Shared code of the benchmarks: `Result`, the alternating comparison, the table, and the command line.

A benchmark is a file ``bench_<name>.py`` with one function ``run(quick) -> list[Result]``; see README.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

Clock = Literal["cpu", "wall"]
CLOCKS: dict[Clock, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}


@dataclass(frozen=True)
class Result:
    """One line of the table.

    Attributes:
        name: ``group: what is measured``.
        ours: Our result, in `unit`.
        peer: Result of the peer in the same unit; None on a line without a peer.
        ratio: ours / peer, the median over the rounds if there are any; None without a peer.
        rounds: Both sides in each round, in `unit`; empty if they were not measured in rounds.
        unit: Unit such as ``steps/s`` (higher is better) or ``ms`` (lower is better).
        at_least: Lower limit of the ratio if higher is better; None for no limit.
        at_most: Upper limit of the ratio if lower is better; None for no limit.
        note: Name of the peer, and other remarks.
        commit: Commit that was measured, as in `records.commit`; empty before it is recorded.
    """

    name: str
    ours: float
    peer: float | None = None
    ratio: float | None = None
    rounds: Sequence[Sequence[float]] = ()
    unit: str = "steps/s"
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    commit: str = ""

    @property
    def ok(self) -> bool | None:
        """Whether the limit is met; None on a line without a limit."""
        if self.at_least is None and self.at_most is None:
            return None
        if self.ratio is None:
            raise ValueError(f"{self.name}: a limit needs a ratio")
        return (self.at_least is None or self.ratio >= self.at_least) and (
            self.at_most is None or self.ratio <= self.at_most
        )


class Pair(NamedTuple):
    """Medians of both sides and of the ratio of each round, and both sides of each round."""

    ours: float
    peer: float
    ratio: float
    rounds: list[tuple[float, float]]

    @classmethod
    def of(cls, rounds: Sequence[tuple[float, float]]) -> Pair:
        """Return the medians of the rounds."""
        ours, peer = map(statistics.median, zip(*rounds, strict=True))
        return cls(ours, peer, statistics.median(a / b for a, b in rounds), list(rounds))

    def times(self, per_second: float) -> Pair:
        """Return times instead of rates: in milliseconds for 1e3, in microseconds for 1e6."""
        return Pair.of([(per_second / ours, per_second / peer) for ours, peer in self.rounds])


def rate(work: Callable[[], int], seconds: float, clock: Clock = "cpu") -> float:
    """Return the units of work per second, by calling `work` for `seconds`; each call returns its units."""
    now = CLOCKS[clock]
    units, start = 0, now()
    while True:
        units += work()
        elapsed = now() - start
        if elapsed >= seconds:
            return units / elapsed


def compare(
    ours: Callable[[], int],
    peer: Callable[[], int],
    *,
    seconds: float = 0.2,
    rounds: int = 7,
    clock: Clock = "cpu",
) -> Pair:
    """Measure the rates of both sides in alternating rounds.

    The ratio is the median over rounds. Each round measures both sides back to back, in alternating order,
    so that other load on the machine slows down both. ``clock="cpu"`` counts only the CPU time of this
    process, which suits single-threaded loops on a shared machine; use ``"wall"`` to measure threads,
    processes, or waiting.
    """
    sides = {"ours": ours, "peer": peer}
    rates: dict[str, list[float]] = {"ours": [], "peer": []}
    for work in sides.values():
        work()  # warm-up: imports, caches
    for index in range(rounds):
        for side in sorted(sides, reverse=bool(index % 2)):
            gc.collect()
            rates[side].append(rate(sides[side], seconds, clock))
    return Pair.of(list(zip(rates["ours"], rates["peer"], strict=True)))


def number(value: float | None) -> str:
    """Return a number with three significant digits and thousands separators."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def share(ratio: float) -> str:
    """Return a ratio with two decimals, or with four if it is small."""
    return f"{ratio:.{2 if ratio >= 0.1 else 4}f}"


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table, which is also readable in a terminal."""
    head = ("benchmark", "unit", "ours", "peer", "ratio", "rounds", "limit", "", "note")
    rows: list[tuple[str, ...]] = [head]
    for result in results:
        limit = "-"
        if result.at_least is not None:
            limit = f">= {result.at_least:g}"
        if result.at_most is not None:
            limit = f"<= {result.at_most:g}"
        verdict = {True: "ok", False: "MISS", None: "info"}[result.ok]
        ratio = "-" if result.ratio is None else share(result.ratio)
        ratios = [a / b for a, b in result.rounds]
        interval = f"{share(min(ratios))} to {share(max(ratios))}" if ratios else "-"
        ours, peer = number(result.ours), number(result.peer)
        rows.append((result.name, result.unit, ours, peer, ratio, interval, limit, verdict, result.note))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, tuple("-" * width for width in widths))
    right = {2, 3, 4}
    return "\n".join(
        "| "
        + " | ".join(
            cell.rjust(width) if column in right and cell.strip("-") else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    )


def save(results: Sequence[Result], path: Path) -> None:
    """Write the results and their verdicts as JSON, one per line; rounds have four significant digits."""
    rows = []
    for result in results:
        rounds = [[float(f"{value:.4g}") for value in both] for both in result.rounds]
        rows.append(json.dumps({**asdict(result), "rounds": rounds, "ok": result.ok}))
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n")


def load(path: Path) -> list[Result]:
    """Read results that `save` wrote."""
    return [
        Result(**{key: value for key, value in row.items() if key != "ok"})
        for row in json.loads(path.read_text())
    ]


def merge(recorded: Sequence[Result], results: Sequence[Result]) -> list[Result]:
    """Return the recorded results, with those of the groups in `results` replaced, or added at the end."""
    groups = {result.name.split(":")[0] for result in results}
    kept = [result for result in recorded if result.name.split(":")[0] not in groups]
    names = [result.name.split(":")[0] for result in recorded]
    place = next((index for index, name in enumerate(names) if name in groups), len(kept))
    return [*kept[:place], *results, *kept[place:]]


def main(run: Callable[[bool], list[Result]]) -> None:
    """Run the command line of one benchmark: print its table, and exit with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=(sys.modules["__main__"].__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the results to this file as well")
    parser.add_argument("--quick", action="store_true", help="short rounds, to check that it runs")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = run(args.quick)
    print(table(results))
    if args.json:
        save(results, args.json)
    sys.exit(1 if any(result.ok is False for result in results) else 0)
