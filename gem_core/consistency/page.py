"""Write the comparison of steps as one self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core.consistency.compare import LEVELS, Comparison, ConsistencyLevel
from gem_core.consistency.record import Record

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2321; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
th, td { text-align: left; padding: .45rem .7rem; border-bottom: 1px solid #dde3e0; vertical-align: top; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; }
  table { display: block; overflow-x: auto; }
  th, td { padding: .3rem .5rem; min-width: 6rem; }
}
.equal { color: #12664a; } .differs { color: #a4262c; font-weight: 600; } .unknown { color: #6b7471; }
code, pre { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
"""


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
        "<p>Same tasks, same model responses, same weights. A cell gives the largest difference from "
        f"gem_core.</p><table><tr><th>trainer</th>{head}</tr>{''.join(rows)}</table>{''.join(details)}"
    )
    write_document(out, "The same step in every trainer", body)


def write_document(out: str | Path, title: str, body: str, style: str = "") -> None:
    """Write an HTML page with the common style of this package, followed by `style`."""
    head = (
        f"<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>gem-core: {title}</title><style>{_STYLE}{style}</style>"
    )
    text = f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{title}</h1>{body}</body></html>\n"
    write_atomically(out, [text])


def verdict_cell(equal: bool | None, text: str) -> str:
    """Return a table cell in the color of its verdict."""
    kind = {None: "unknown", True: "equal", False: "differs"}[equal]
    return f"<td class='{kind}'>{html.escape(text)}</td>"


def _cell(level: ConsistencyLevel | None) -> str:
    if level is None or level.equal is None:
        return verdict_cell(None, "not run")
    return verdict_cell(level.equal, level.verdict)


def _details(record: Record, comparison: Comparison) -> str:
    parts = [f"<h2 id='{html.escape(record.trainer)}'>{html.escape(record.trainer)}</h2>"]
    for number, level in comparison.levels.items():
        lines = [*level.differences, *(f"not compared, {k}: {v}" for k, v in level.not_carried.items())]
        parts += [f"<p>Level {number}: {html.escape(line)}</p>" for line in lines]
    for title, values in (("other options, same episodes", record.cases), ("also measured", record.notes)):
        if values:
            rows = "".join(f"<tr><td>{html.escape(k)}</td><td>{v:.2g}</td></tr>" for k, v in values.items())
            parts.append(f"<table><tr><th>{title}</th><th></th></tr>{rows}</table>")
    parts.append(f"<pre>{html.escape(record.command)}</pre>")
    return "".join(parts)
