"""The main comparisons of estimators and discounts, from several studies, in one table and one figure.

    python benchmarks/overview.py

Reads ``docs/results/*/runs.jsonl.gz`` and writes ``docs/results/overview``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from records import ROOT, RUNS, Record, read_records
from studies.comparison import differences, select, show_interval

from gem_core._util.files import write_atomically
from gem_lab.eval._intervals import estimate_t
from gem_lab.train._report import COLORS, new_figure, save_figure

RESULTS = ROOT / "docs" / "results"


class Comparison(NamedTuple):
    """A difference of two arms on a task of a study.

    Attributes:
        setting: Name of the row, which comparisons may share.
        study: Name of the study.
        task: Name of the task.
        first: Arm from which `second` is subtracted.
        second: Arm to compare with.
        label: Name of the difference in the legend.
    """

    setting: str
    study: str
    task: str
    first: str
    second: str
    label: str = ""


class Panel(NamedTuple):
    """Comparisons that answer the same question.

    Attributes:
        title: Title of the panel and of the table.
        metric: Metric of the evaluation that is compared.
        comparisons: The comparisons, from top to bottom.
    """

    title: str
    metric: str
    comparisons: Sequence[Comparison]


_REBN = ("ReBN", "REINFORCE")
_PENALTY = ("ReBN, KL 0.3", "REINFORCE, KL 0.3")
_TASKS = {
    "guess": "10 numbers",
    "mastermind": "Mastermind",
    "mines": "Minesweeper",
    "files": "files, with Python",
    "pages": "reading a page",
    "letters": "counting letters",
    "sums": "sums",
    "legs": "counting legs",
}
PANELS = (
    Panel(
        "ReBN minus REINFORCE, 10 numbers: return",
        "gem/return",
        [
            Comparison("7,680 episodes", "penalty", "guess", *_REBN),
            Comparison("7,680, KL 0.3", "penalty", "guess", *_PENALTY),
            Comparison("7,680, groups of 8", "rebn", "guess", "rebn", "reinforce"),
            Comparison("61,440 episodes", "budget", "guess", *_REBN),
            Comparison("61,440, KL 0.3", "budget", "guess", *_PENALTY),
        ],
    ),
    Panel(
        "ReBN minus others, groups of 8: return",
        "gem/return",
        [
            Comparison(setting, "algorithms", task, "ReBN", other, f"minus {other}")
            for task, setting in _TASKS.items()
            for other in ("REINFORCE", "GRPO", "PPO")
        ],
    ),
    Panel(
        "2048 with up to 128 turns: return",
        "gem/return",
        [
            Comparison(f"{first} minus {second}", "long", "2048", first, second)
            for first, second in (
                ("ReBN, gamma 1", "REINFORCE, gamma 1"),
                ("ReBN, gamma 0.9", "REINFORCE, gamma 0.9"),
                ("ReBN, gamma 1", "GRPO, gamma 1"),
                ("ReBN, gamma 0.9", "ReBN, gamma 1"),
                ("REINFORCE, gamma 0.9", "REINFORCE, gamma 1"),
            )
        ],
    ),
    Panel(
        "Gamma minus gamma 1: turns per episode",
        "gem/turns",
        [
            Comparison(f"gamma {gamma}", "discount", task, f"gamma {gamma}", "gamma 1", label)
            for gamma in ("0", "0.5", "0.9", "0.99", "0.999")
            for task, label in (("ten", "10 numbers"), ("twenty", "20 numbers"))
        ],
    ),
)


def draw(out: Path) -> None:
    """Write ``summary.md`` and ``differences.png``."""
    studies = {comparison.study for panel in PANELS for comparison in panel.comparisons}
    records = {study: read_records(RESULTS / study / RUNS) for study in studies}
    lines = [
        "# Main differences",
        "",
        "Differences between estimators and between discounts after training, on held-out seeds: the mean",
        "over paired seeds, with a 95% t interval. The pages of the studies describe the protocol, and say",
        "where the learning rate was tuned.",
        "",
        "![differences with intervals](differences.png)",
    ]
    figure, axes = new_figure(len(PANELS), columns=2)
    figure.set_size_inches(12, 8)
    for panel, axis in zip(PANELS, axes, strict=True):
        values = [_gaps(one, panel.metric, records) for one in panel.comparisons]
        lines += ["", f"## {panel.title}", "", *_table(panel, values)]
        _plot(axis, panel, values)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "summary.md", ["\n".join(lines) + "\n"])
    save_figure(figure, out / "differences.png")


def _gaps(comparison: Comparison, metric: str, records: Mapping[str, Sequence[Record]]) -> list[float]:
    """Return the difference on each seed."""
    complete = [record for record in records[comparison.study] if record.phase != "tuning"]
    first, second = (select(complete, comparison.task, arm) for arm in (comparison.first, comparison.second))
    return differences(first, second, metric)


def _table(panel: Panel, values: Sequence[Sequence[float]]) -> list[str]:
    lines = ["| setting | difference | seeds | study |", "|---|---|---|---|"]
    for one, gaps in zip(panel.comparisons, values, strict=True):
        setting = f"{one.setting}, {one.label}" if one.label else one.setting
        link = f"[{one.study}](../{one.study}/summary.md)"
        lines.append(f"| {setting} | {show_interval(gaps)} | {len(gaps)} | {link} |")
    return lines


def _plot(axis: Any, panel: Panel, values: Sequence[Sequence[float]]) -> None:
    rows = list(dict.fromkeys(one.setting for one in panel.comparisons))
    labels = list(dict.fromkeys(one.label for one in panel.comparisons))
    shown = set()
    for one, gaps in zip(panel.comparisons, values, strict=True):
        interval, index = estimate_t(gaps), labels.index(one.label)
        height = rows.index(one.setting) + 0.22 * (index - (len(labels) - 1) / 2)
        color = COLORS[index]
        axis.plot([interval["low"], interval["high"]], [height] * 2, color=color, linewidth=1.5)
        name = one.label if one.label not in shown else None
        axis.plot(interval["mean"], height, "o", color=color, markersize=5, label=name)
        shown.add(one.label)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(rows)), [row.replace(" minus ", "\nminus ") for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel("")
    axis.set_title(panel.title, loc="left", fontsize=11)
    if len(labels) > 1:
        axis.legend(frameon=False, fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))


if __name__ == "__main__":
    draw(RESULTS / "overview")
