"""The table of agents in docs/concepts/agents.md, from the reports of `nox -s harness`.

    python tools/harness_table.py FOLDER

The row of an agent without a report, which the session has skipped, stays as it is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "concepts" / "agents.md"
BEGIN, END = "<!-- harness table -->\n", "<!-- end of the harness table -->\n"
HEAD = (
    "| agent | version | API | calls | recognized | rows | what it changes |\n|---|---|---|---|---|---|---|\n"
)
APIS = {"chat/completions": "chat completions", "messages": "Anthropic messages", "responses": "Responses"}


def row(report: Mapping[str, Any]) -> str:
    """Return the row of a report."""
    endpoints = {name.partition(",")[0] for name in report["endpoints"]}
    streamed = ", streamed" if any("streamed" in name for name in report["endpoints"]) else ""
    own = report["recognized"] + report["spliced"]
    every = own + sum(report["foreign"].values())
    changes = [f"{what} ({count})" for what, count in report["changes"].items()]
    changes += [f"adds or rewrites {count} answers" for count in [sum(report["foreign"].values())] if count]
    cells = (
        f"`{report['name'].rpartition(':')[2]}`",
        report["version"] or "",
        " and ".join(APIS[name] for name in sorted(endpoints)) + streamed,
        str(sum(report["endpoints"].values())),
        f"{own} of {every}" + (f", {report['spliced']} in a new history" if report["spliced"] else ""),
        str(len(report["rows"])),
        "; ".join(changes) or "nothing",
    )
    return f"| {' | '.join(cells)} |\n"


def fill(text: str, reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page with new rows in its table.

    Args:
        text: The page.
        reports: Reports by the name of the harness.
    """
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    old = {match[1]: match[0] for match in re.finditer(r"^\| `([\w-]+)` .*\n", table, re.MULTILINE)}
    rows = old | {name: row(report) for name, report in reports.items()}
    return before + BEGIN + HEAD + "".join(rows[name] for name in sorted(rows)) + END + after


def read_reports(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the reports in a folder by the name of the harness."""
    files = sorted(folder.glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


if __name__ == "__main__":
    page = fill(PAGE.read_text(encoding="utf-8"), read_reports(Path(sys.argv[1])))
    PAGE.write_text(page, encoding="utf-8")
