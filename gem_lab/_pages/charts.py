"""Small plots for web pages as inline SVG: means with their intervals, and curves."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

COLORS = ("#2c5fa8", "#1b7f5c", "#b0562a", "#7a4ba0", "#8a7413", "#3c8ca0", "#a83a5b", "#5b6470")
"""Colors of the runs, in order; reused from the start when there are more runs."""

_LEFT, _WIDTH, _RIGHT, _STEP, _TOP = 12, 420, 60, 16, 26


def interval_chart(
    title: str,
    rows: Mapping[str, Sequence[Mapping[str, Any] | None]],
    *,
    low: float = 0.0,
    high: float = 1.0,
    band: float | None = None,
) -> str:
    """Return a plot with a dot and a bar for each estimate.

    Args:
        title: Title above the plot, also read by screen readers.
        rows: Maps a label to one estimate per run (keys ``mean``, ``low``, ``high``); None if a run has no
            estimate.
        low: Left end of the scale; extended if a value lies below it.
        high: Right end of the scale; extended if a value lies above it.
        band: Half the width of a shaded band around zero, such as a margin of equivalence. The plot then also
            has a line at zero. None draws neither.

    Returns:
        An ``<svg>`` element.
    """
    known = [
        estimate for row in rows.values() for estimate in row if estimate and estimate["mean"] is not None
    ]
    ends = [value for estimate in known for value in _ends(estimate)]
    low, high = min([low, *ends]), max([high, *ends])

    def place(value: float) -> float:
        return round(_LEFT + (value - low) / (high - low) * _WIDTH, 1)

    parts = [f'<text x="0" y="14" class="title">{html.escape(title)}</text>']
    bottom = _TOP + sum((1 + max(1, len(row))) * _STEP + 8 for row in rows.values())
    if band is not None:
        left, width = place(-band), place(band) - place(-band)
        parts.append(
            f'<rect class="band" x="{left}" y="{_TOP - 4}" width="{width:.1f}" height="{bottom - _TOP + 4}">'
            f"<title>±{band:g}</title></rect>"
        )
    for value in _ticks(low, high):
        x = place(value)
        kind = "grid zero" if band is not None and value == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{bottom}"/>')
        parts.append(f'<text class="scale" x="{x}" y="{bottom + 14}">{value:g}</text>')
    y = _TOP
    for label, row in rows.items():
        parts.append(f'<text class="label" x="{_LEFT + 5}" y="{y + 12}">{html.escape(_short(label))}'
                     f"<title>{html.escape(label)}</title></text>")  # fmt: skip
        y += _STEP
        for index, estimate in enumerate(row):
            if estimate and estimate["mean"] is not None:
                parts.append(_mark(estimate, place, y + _STEP / 2, COLORS[index % len(COLORS)]))
            y += _STEP
        y += 8
    size = f"0 0 {_LEFT + _WIDTH + _RIGHT} {bottom + 20}"
    return (
        f'<svg class="chart" role="img" aria-label="{html.escape(title)}" viewBox="{size}" '
        f'width="{_LEFT + _WIDTH + _RIGHT}">{"".join(parts)}</svg>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return at most six round numbers from `low` to `high`."""
    magnitude = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(
        step for step in (magnitude * factor for factor in (1, 2, 2.5, 5, 10)) if (high - low) / step <= 5
    )
    return [
        round(index * step, 10) + 0.0  # not -0
        for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def _mark(estimate: Mapping[str, Any], place: Any, y: float, color: str) -> str:
    left, right = _ends(estimate)
    return (
        f'<line x1="{place(left)}" x2="{place(right)}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2"/>'
        f'<circle cx="{place(estimate["mean"])}" cy="{y}" r="4" fill="{color}"/>'
        f'<text class="value" x="{place(right) + 8}" y="{y + 4}">{estimate["mean"]:.3f}</text>'
    )


def _ends(estimate: Mapping[str, Any]) -> tuple[float, float]:
    """Return the interval, or the value itself at both ends if there is only one task."""
    mean = float(estimate["mean"])
    low, high = estimate.get("low"), estimate.get("high")
    return (mean if low is None else float(low)), (mean if high is None else float(high))


def _short(label: str) -> str:
    return label if len(label) <= 64 else label[:63] + "…"


def line_chart(
    title: str, series: Mapping[str, Sequence[Sequence[float]]], strokes: Mapping[str, tuple[str, str]]
) -> str:
    """Return a plot of shares, 0 to 1, over steps, with thin curves for each series and a thick mean.

    Args:
        title: Title above the plot, also read by screen readers.
        series: Maps a label to its curves, one number per step from the first step on.
        strokes: Maps a label to a color and the dashes of the mean (SVG's ``stroke-dasharray``; empty for a
            solid line).

    Returns:
        An ``<svg>`` element.
    """
    left, height = 40, 220
    bottom, longest = _TOP + height, max(len(curve) for curves in series.values() for curve in curves)

    def line(values: Sequence[float], color: str, style: str) -> str:
        points = " ".join(
            f"{left + _WIDTH * step / max(1, longest - 1):.1f},{bottom - height * value:.1f}"
            for step, value in enumerate(values)
        )
        return f'<polyline points="{points}" fill="none" stroke="{color}" {style}/>'

    parts = [f'<text x="0" y="14" class="title">{html.escape(title)}</text>']
    for index in range(5):
        y = bottom - height * index / 4
        parts.append(f'<line class="grid" x1="{left}" x2="{left + _WIDTH}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="scale" x="{left - 20}" y="{y + 4}">{index / 4:.2f}</text>')
    for x, text in ((left, "step 1"), (left + _WIDTH, f"step {longest}")):
        parts.append(f'<text class="scale" x="{x}" y="{bottom + 14}">{text}</text>')
    for index, (label, curves) in enumerate(series.items()):
        color, dashes = strokes[label]
        parts += [line(curve, color, 'stroke-width="0.8" opacity="0.3"') for curve in curves]
        mean = [sum(values) / len(values) for values in zip(*curves, strict=False)]
        thick = f'stroke-width="2.2" stroke-dasharray="{dashes}"'
        parts.append(line(mean, color, thick))
        y = _TOP + 12 + _STEP * index
        x = left + _WIDTH + 10
        parts.append(
            f'<line x1="{x}" x2="{x + 26}" y1="{y - 4}" y2="{y - 4}" stroke="{color}" {thick}/>'
            f'<text x="{x + 32}" y="{y}" style="fill: {color}">{html.escape(label)}</text>'
        )
    width = left + _WIDTH + 180
    return (
        f'<svg class="chart curves" role="img" aria-label="{html.escape(title)}" '
        f'viewBox="0 0 {width} {bottom + 20}" width="{width}">{"".join(parts)}</svg>'
    )
