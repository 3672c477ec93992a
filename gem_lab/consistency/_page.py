"""Write the comparison of steps as one self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path

from gem_lab._pages.document import verdict_cell, write_document
from gem_lab.consistency._compare import LEVELS, Comparison, ConsistencyLevel
from gem_lab.consistency._record import Record


def write_page(records: Mapping[str, Record], comparisons: Mapping[str, Comparison], out: str | Path) -> None:
    """Write the page.

    Args:
        records: Records by trainer.
        comparisons: Results by trainer; a trainer without a record is shown as not run.
        out: Path of the HTML file.
    """
    head = "".join(f"<th>{html.escape(f'{number}. {name}')}</th>" for number, name in LEVELS.items())
    rows, details = [], []
    for trainer, comparison in comparisons.items():
        record = records.get(trainer)
        versions = ", ".join(f"{k} {v}" for k, v in record.versions.items()) if record else "not run"
        cells = "".join(_cell(comparison.levels.get(number)) for number in LEVELS)
        name = html.escape(trainer)
        link = f"<a href='#{name}'>{name}</a>" if record else name
        rows.append(f"<tr><td>{link}<br><small>{html.escape(versions)}</small></td>{cells}</tr>")
        if record is not None:
            details.append(_details(record, comparison))
    body = (
        "<p>Every trainer takes the same step: the same tasks, model responses, and weights. Level 1 "
        "compares the tokens, turns, and rewards of each episode, level 2 the advantages, and level 3 the "
        "gradient. A number is the largest difference from gem_core; about 1e-7 is rounding.</p>"
        f"<table><tr><th>trainer</th>{head}</tr>{''.join(rows)}</table>{''.join(details)}"
    )
    write_document(out, "The same step in every trainer", body)


def _cell(level: ConsistencyLevel | None) -> str:
    if level is None or level.equal is None:
        return verdict_cell(None, "not run")
    return verdict_cell(level.equal, level.verdict)


def _details(record: Record, comparison: Comparison) -> str:
    parts = [f"<h2 id='{html.escape(record.trainer)}'>{html.escape(record.trainer)}</h2>"]
    for number, level in comparison.levels.items():
        lines = [*level.differences, *(f"not compared, {k}: {v}" for k, v in level.not_carried.items())]
        parts += [f"<p>Level {number}: {html.escape(line)}</p>" for line in lines]
    for title, column, values in (
        ("level 2 with other options, on the same episodes", "largest difference", record.cases),
        ("also measured", "value", record.notes),
    ):
        if values:
            rows = "".join(f"<tr><td>{html.escape(k)}</td><td>{v:.2g}</td></tr>" for k, v in values.items())
            parts.append(f"<table><tr><th>{title}</th><th>{column}</th></tr>{rows}</table>")
    parts.append(f"<p>Recorded with:</p><pre>{html.escape(record.command)}</pre>")
    return "".join(parts)
