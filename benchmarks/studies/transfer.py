"""Changes on environments other than that of the training: tables and a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from records import Record

from gem_core.tasks import EnvChoice
from gem_lab.train._report import new_figure, save_figure
from studies import Study
from studies.comparison import select, short_name, show_interval

Changes = list[list[list[float]]]
"""One row per task, one column per evaluation environment, and in each cell one change per seed."""


def section(study: Study, arms: Sequence[str], records: Sequence[Record], out: Path) -> list[str]:
    """Return a table of changes for each arm, and write ``transfer.png`` if there is only one arm.

    There is no section if each run is evaluated on one environment only.
    """
    if all(len(record.evaluation.get("before", {})) < 2 for record in records):
        return []
    envs = list(dict.fromkeys(env for record in records for env in record.evaluation.get("before", {})))
    names = {EnvChoice.parse(task.env).label: name for name, task in study.tasks.items()}
    columns = [names.get(env, env) for env in envs]
    metric = short_name(study.metric)
    lines = ["", "## Changes on all environments", ""]
    lines += [f"{metric.capitalize()} after minus before training, with a 95% t interval. A row is the"]
    lines += ["environment of the training, a column that of the evaluation."]
    for arm in arms:
        changes = [
            [_changes(select(records, task, arm), env, study.metric) for env in envs] for task in study.tasks
        ]
        lines += ["", f"{arm}:", ""]
        lines += [f"| trained on | {' | '.join(columns)} |", "|---" * (1 + len(envs)) + "|"]
        for task, row in zip(study.tasks, changes, strict=True):
            lines.append(f"| {task} | {' | '.join(map(show_interval, row))} |")
        if len(arms) == 1:
            _figure(f"{study.title}: change of the {metric}", [*study.tasks], columns, changes, out)
            lines += ["", "![changes on all environments](transfer.png)"]
    return lines


def _changes(runs: Sequence[Record], env: str, metric: str) -> list[float]:
    return [
        run.evaluation["after"][env][metric] - run.evaluation["before"][env][metric]
        for run in runs
        if all(metric in run.evaluation[when].get(env, {}) for when in ("before", "after"))
    ]


def _figure(title: str, rows: Sequence[str], columns: Sequence[str], changes: Changes, out: Path) -> None:
    means = [[fmean(cell) if cell else math.nan for cell in row] for row in changes]
    limit = max(abs(mean) for row in means for mean in row if not math.isnan(mean))
    figure, (axis,) = new_figure(1)
    figure.set_size_inches(2 + 0.8 * len(columns), 1.5 + 0.55 * len(rows))
    axis.grid(visible=False)
    axis.imshow(means, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for row, values in enumerate(means):
        for column, mean in enumerate(values):
            color = "white" if abs(mean) > 0.6 * limit else "black"
            axis.text(column, row, f"{mean:+.2f}", ha="center", va="center", color=color, fontsize=9)
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.set_xlabel("evaluated on")
    axis.set_ylabel("trained on")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    save_figure(figure, out / "transfer.png")
