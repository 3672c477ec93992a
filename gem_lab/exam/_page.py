"""Write the results of an exam as one HTML page with plots."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from gem_lab._pages.charts import COLORS
from gem_lab._pages.document import verdict_cell, write_document
from gem_lab.exam._certificates import BIASED, UNBIASED
from gem_lab.exam._run import Exam

Series: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]

_STYLE = """
body { max-width: 78rem; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; }
svg.plot { max-width: 100%; height: auto; }
"""
_WIDTH, _HEIGHT, _LEFT, _TOP, _LEGEND = 300, 190, 54, 26, 190
_FLOOR = 1e-3
"""Smallest value on a logarithmic axis."""


def write_page(
    exam: Exam,
    out: str | Path,
    *,
    gammas: Exam | None = None,
    groups: Exam | None = None,
    turns: Exam | None = None,
) -> None:
    """Write the page.

    Args:
        exam: Results.
        out: Path of the HTML file.
        gammas: Results of `sweeps.sweep_gamma`; None leaves out the plot.
        groups: Results of `sweeps.sweep_groups`; None leaves out the plot.
        turns: Results of `sweeps.sweep_turns`; None leaves out the plot.
    """
    rows = "".join(
        f"<tr><td>{html.escape(certificate.estimator)}</td>"
        + verdict_cell({UNBIASED: True, BIASED: False}.get(certificate.verdict), str(certificate))
        + f"<td>{html.escape(', '.join(certificate.tasks))}</td>"
        f"<td>{html.escape(certificate.reason)}</td></tr>"
        for certificate in exam.certificates
        if certificate.aggregation == "token-sum"
    )
    body = (
        "<p>Relative bias: the part of the expected gradient orthogonal to the exact gradient, divided by "
        "the norm of the expected gradient. Sum over tokens.</p><table><tr><th>estimator</th>"
        "<th>certificate (error rate 1%)</th><th>biased on</th><th>reason</th></tr>"
        f"{rows}</table><h2>Relative bias against batch size</h2>{bias_plots(exam)}"
        f"<h2>Signal-to-noise ratio against batch size</h2>{snr_plots(exam)}"
        + (f"<h2>Cosine against discount</h2>{gamma_plots(gammas)}" if gammas else "")
        + (f"<h2>Relative bias against size of group</h2>{group_plots(groups)}" if groups else "")
        + (f"<h2>Cosine against turns, sparse chain</h2>{turns_plot(turns)}" if turns else "")
        + f"<h2>Settings</h2><pre>{html.escape(json.dumps(exam.config))}</pre>"
    )
    write_document(out, "The estimator exam", body, _STYLE)


def bias_plots(exam: Exam) -> str:
    """Return one plot per task of the relative bias against the batch size, both on logarithmic scales."""
    return _per_task(exam, "batch_size", "bias", x_label="B", log_y=True)


def snr_plots(exam: Exam) -> str:
    """Return one plot per task of the signal-to-noise ratio against the batch size."""
    return _per_task(exam, "batch_size", "snr", x_label="B", log_y=True)


def gamma_plots(exam: Exam) -> str:
    """Return one plot per task of the cosine to the gradient of the undiscounted return, against gamma."""
    return _per_task(exam, "gamma", "cosine", x_label="gamma", log_x=False)


def group_plots(exam: Exam) -> str:
    """Return one plot per task of the relative bias against the number of episodes per group."""
    return _per_task(exam, "group_size", "bias", x_label="group", log_y=True)


def turns_plot(exam: Exam) -> str:
    """Return a plot of the mean cosine of single batches against the number of turns."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in exam.select(aggregation="token-sum"):
        if row.alignment is not None:
            turns = float(row.task.rpartition("-")[2]) if row.task[-1].isdigit() else 64.0
            series.setdefault(row.estimator, []).append((turns, row.alignment))
    return line_plot("mean cosine of a batch of 128", series, x_label="turns", legend=True)


def line_plot(
    title: str, series: Series, *, x_label: str, log_x: bool = True, log_y: bool = False, legend: bool = False
) -> str:
    """Return a plot as an ``<svg>`` element that needs no style sheet.

    Args:
        title: Title above the plot, also read by screen readers.
        series: Points (x, y) by name.
        x_label: Name of the x-axis.
        log_x: Whether the x-axis is logarithmic.
        log_y: Whether the y-axis is logarithmic; smaller values than 0.001 are drawn at "≤ 0.001".
        legend: Whether to list the names next to the plot.
    """
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [max(y, _FLOOR) if log_y else y for points in series.values() for _, y in points]
    if not xs:
        return ""
    low, high = min([*ys, 0.0]), max([*ys, 1.0])
    if log_y:
        low = 10.0 ** math.floor(math.log10(min(ys)))
        high = max(10 * low, max(ys))

    def place(value: float, first: float, last: float, log: bool) -> float:
        if log:
            value, first, last = math.log10(max(value, _FLOOR)), math.log10(first), math.log10(last)
        return (value - first) / (last - first) if last > first else 0.5

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            round(_LEFT + _WIDTH * place(x, xs[0], xs[-1], log_x), 1),
            round(_TOP + _HEIGHT * (1 - place(y, low, high, log_y)), 1),
        )

    bottom = _TOP + _HEIGHT
    parts = [f'<text x="0" y="14" font-weight="600" font-size="13">{html.escape(title)}</text>']
    for y in _ticks(low, high, log_y):
        height = at(xs[0], y)[1]
        text = f"≤ {y:g}" if log_y and y == _FLOOR else f"{y:g}"
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{height}" y2="{height}" stroke="#dde3e0"/>'
            f'<text x="{_LEFT - 6}" y="{height + 4}" text-anchor="end" fill="#6b7471">{text}</text>'
        )
    free = math.inf  # labels from the right, as long as they do not overlap
    for x in reversed(xs):
        middle = at(x, low)[0]
        if free - middle >= 24:
            parts.append(
                f'<text x="{middle}" y="{bottom + 15}" text-anchor="middle" fill="#6b7471">{x:g}</text>'
            )
            free = middle
    parts.append(
        f'<text x="{_LEFT + _WIDTH / 2}" y="{bottom + 30}" text-anchor="middle">{html.escape(x_label)}</text>'
    )
    for index, (name, points) in enumerate(series.items()):
        stroke = f'stroke="{COLORS[index % len(COLORS)]}" stroke-dasharray="{_dashes(index)}"'
        line = " ".join("{},{}".format(*at(x, y)) for x, y in sorted(points))
        parts.append(
            f'<polyline points="{line}" fill="none" stroke-width="1.8" {stroke}>'
            f"<title>{html.escape(name)}</title></polyline>"
        )
        if legend:
            y, x = _TOP + 6 + 15 * index, _LEFT + _WIDTH + 20
            parts.append(
                f'<line x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}" stroke-width="1.8" {stroke}/>'
                f'<text x="{x + 28}" y="{y + 4}">{html.escape(name)}</text>'
            )
    width = _LEFT + _WIDTH + (_LEGEND + 38 if legend else 14)
    height = max(bottom + 36, _TOP + 15 * len(series) + 10 if legend else 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" aria-label="{html.escape(title)}" '
        f'viewBox="0 0 {width} {height}" width="{width}" font-family="system-ui, sans-serif" '
        f'font-size="10.5" fill="#1c2321">{"".join(parts)}</svg>'
    )


def _per_task(exam: Exam, x: str, y: str, *, x_label: str, log_x: bool = True, log_y: bool = False) -> str:
    plots = []
    tasks = [(task, stage) for stage in exam.config["stages"] for task in exam.config["tasks"]]
    for index, (task, stage) in enumerate(tasks):
        series: dict[str, list[tuple[float, float]]] = {}
        for row in exam.select(task=task, stage=stage, aggregation="token-sum"):
            value = getattr(row, y)
            if value is not None and row.batches:
                series.setdefault(row.estimator, []).append((getattr(row, x), value))
        plots.append(
            line_plot(
                f"{task}, {stage}", series, x_label=x_label, log_x=log_x, log_y=log_y,
                legend=index == len(tasks) - 1,
            )
        )  # fmt: skip
    return f'<div class="plots">{"".join(plots)}</div>'


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        return [10.0**power for power in range(round(math.log10(low)), math.ceil(math.log10(high)) + 1)
                if low <= 10.0**power <= high]  # fmt: skip
    return [round(low + (high - low) * index / 4, 2) for index in range(5)]


def _dashes(index: int) -> str:
    return ("", "6 3", "2 3")[index // len(COLORS) % 3]
