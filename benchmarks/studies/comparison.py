"""Comparisons of recorded runs on paired seeds, and how pages show them."""

from __future__ import annotations

from collections.abc import Sequence

from records import Record

from gem_lab.eval._intervals import estimate_t


def select(records: Sequence[Record], task: str, arm: str) -> list[Record]:
    """Return the records of a task and an arm, ordered by seed."""
    mine = [record for record in records if record.name == arm and record.task in (task, "")]
    return sorted(mine, key=lambda record: record.seed)


def differences(mine: Sequence[Record], base: Sequence[Record], metric: str) -> list[float]:
    """Return the differences of a metric after training, one per seed that both sides have."""
    theirs = {record.seed: record.after[metric] for record in base if metric in record.after}
    return [
        record.after[metric] - theirs[record.seed]
        for record in mine
        if record.seed in theirs and metric in record.after
    ]


def short_name(metric: str) -> str:
    """Return the name of a metric for readers."""
    return metric.rpartition("/")[2].replace("_", " ")


def show_interval(gaps: Sequence[float]) -> str:
    """Return the mean of differences, with its t interval if there are several; "" without differences."""
    if not gaps:
        return ""
    interval = estimate_t(gaps)
    spread = "" if interval["se"] is None else f" ({interval['low']:+.3f} to {interval['high']:+.3f})"
    return f"{interval['mean']:+.3f}{spread}"
