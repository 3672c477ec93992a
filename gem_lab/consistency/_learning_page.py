"""Write the results of level 4 as one HTML page: intervals, curves, and every run with its command."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from gem_lab._pages.charts import COLORS, interval_chart, line_chart
from gem_lab._pages.document import verdict_cell, write_document
from gem_lab.consistency._learning import MARGIN, REBN, REFERENCE, Equivalence, LearningRun

_STYLE = """
.chart { max-width: 100%; height: auto; display: block; margin: 1rem 0; }
.plot { overflow-x: auto; }
.plot .curves { min-width: 30rem; }
.chart text { font: 11.5px system-ui, sans-serif; fill: #1c2321; }
.chart .title { font-weight: 600; font-size: 13px; }
.chart .scale { fill: #6b7471; text-anchor: middle; font-size: 10px; }
.chart .grid { stroke: #dde3e0; }
.chart .zero { stroke: #6b7471; }
.chart .band { fill: #12664a; opacity: 0.1; }
"""

_DASHES = {REBN: "", "control": "2 3"}


def write_learning_page(runs: Sequence[LearningRun], results: Iterable[Equivalence], out: str | Path) -> None:
    """Write the page.

    Args:
        runs: All learning runs.
        results: Results of `compare_learning` for these runs.
        out: Path of the HTML file.
    """
    by_task: dict[str, list[Equivalence]] = {}
    for result in results:
        by_task.setdefault(result.task, []).append(result)
    sections = [
        _section(task, by_task.get(task, []), [run for run in runs if run.task == task], strokes(runs))
        for task in dict.fromkeys(run.task for run in runs)
    ]
    body = (
        "<p>Same initial weights, same budget, paired seeds; the last policy plays the same evaluation "
        f"seeds. The margin of a task is {MARGIN:.0%} of the reference trainer's gain in success. A trainer "
        "is equivalent if the 90% t interval of its difference from the reference trainer lies within the "
        "margin, it differs if the interval lies outside, and otherwise the comparison is undecided.</p>"
        f"{''.join(sections)}"
    )
    write_document(out, "The same run in every trainer", body, _STYLE)


def series_name(trainer: str, variant: str) -> str:
    """Return the name of a series of runs in a table or figure."""
    return trainer if variant == REBN else f"{trainer}, {variant}"


def strokes(runs: Iterable[LearningRun]) -> dict[str, tuple[str, str]]:
    """Return the color and dashes of each series: one color per trainer, dashes for variants of ReBN."""
    series = dict.fromkeys((run.trainer, run.variant) for run in runs)
    trainers = sorted({trainer for trainer, _ in series}, key=lambda name: (name != REFERENCE, name))
    return {
        series_name(trainer, variant): (
            COLORS[trainers.index(trainer) % len(COLORS)],
            _DASHES.get(variant, "6 3"),
        )
        for trainer, variant in series
    }


def _section(
    task: str,
    results: Sequence[Equivalence],
    runs: Sequence[LearningRun],
    looks: dict[str, tuple[str, str]],
) -> str:
    curves: dict[str, list[Sequence[float]]] = {}
    for run in sorted(runs, key=lambda run: run.trainer != REFERENCE):
        curves.setdefault(series_name(run.trainer, run.variant), []).append(run.success)
    every = "".join(
        f"<tr><td>{html.escape(series_name(run.trainer, run.variant))}<br><small>{html.escape(run.version)}"
        f"</small></td><td>{run.seed}</td><td>{run.before:.3f}</td><td>{run.after:.3f}</td>"
        f"<td><code>{html.escape(run.command)}</code></td></tr>"
        for run in runs
    )
    trainers = [result for result in results if result.variant == REBN]
    controls = [result for result in results if result.variant != REBN]
    return (
        f"<h2>{html.escape(task)}</h2>"
        f"{_differences('Trainers', trainers)}"
        f"{_differences('Controls, which are expected to differ', controls)}"
        f"<div class='plot'>{line_chart('Success in training', curves, looks)}</div>"
        f"<p>Budget: <code>{html.escape(json.dumps(runs[0].budget))}</code><br>"
        f"SHA-256 of the initial weights: <code>{html.escape(runs[0].model)}</code></p>"
        "<table><tr><th>run</th><th>seed</th><th>before</th><th>after</th><th>command</th></tr>"
        f"{every}</table>"
    )


def _differences(title: str, results: Sequence[Equivalence]) -> str:
    """Return a table and a plot of differences; nothing if there are none."""
    if not results:
        return ""
    rows = "".join(
        f"<tr><td>{html.escape(series_name(result.trainer, result.variant))}</td>"
        f"{verdict_cell(result.equal, result.verdict)}</tr>"
        for result in results
    )
    estimates = {series_name(result.trainer, result.variant): [result.interval or None] for result in results}
    margin = results[0].margin
    span = 2 * margin or 0.1
    plot = interval_chart("Difference in success", estimates, low=-span, high=span, band=margin)
    return (
        f"<h3>{title}</h3><p>Margin: ±{margin:.3f}</p><table><tr><th>trainer</th>"
        f"<th>difference in success from the reference trainer</th></tr>{rows}</table>"
        f"<div class='plot'>{plot}</div>"
    )
