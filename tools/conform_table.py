"""The tables in docs/trainers/conform.md, from the grades in docs/results/conform.json.

    python tools/conform_table.py
    python tools/conform_table.py TRAINER [VERSION]

With a trainer, which must be installed, its grades are recorded first; a checkout needs the version.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marked import with_part

from gem_lab._conform import grade_estimators
from gem_lab._discovery import load_trainer

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, RECORD = DOCS / "trainers" / "conform.md", DOCS / "results" / "conform.json"


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table with a column per estimator and a row per batch."""
    lines = [["batch", *columns]]
    lines += [[batch, *(of[batch] for of in columns.values())] for batch in next(iter(columns.values()))]
    header, *rows = (f"| {' | '.join(cells)} |\n" for cells in lines)
    rule = "|---" * len(lines[0]) + "|\n"
    return header + rule + "".join(rows).replace(" wrong ", " **wrong** ")


def fill(text: str, recorded: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page with other tables.

    Args:
        text: The page.
        recorded: By trainer, its version and the grades of each estimator.
    """
    grades = {name: of for found in recorded.values() for name, of in found["grades"].items()}
    theirs = {name: of for name, of in grades.items() if " in " not in name}
    ours: dict[str, Mapping[str, str]] = {}
    for name in [name for name in grades if name not in theirs]:
        if ours.setdefault(trainer := name.partition(" in ")[2], grades[name]) != grades[name]:
            raise SystemExit(
                f"{name}: another estimator of gem-core in {trainer} has other grades; show both"
            )
    versions = [f"{load_trainer(name).supported.name} {found['version']}" for name, found in recorded.items()]
    text = with_part(text, "versions", f"Recorded with {', '.join(versions[:-1])}, and {versions[-1]}.\n")
    text = with_part(text, "theirs", "\n" + table(theirs) + "\n")
    return with_part(text, "ours", "\n" + table(ours) + "\n")


if __name__ == "__main__":
    found = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    for trainer in sys.argv[1:2]:
        plugin = load_trainer(trainer)
        version = plugin.supported.installed_version() or sys.argv[2]
        found[trainer] = {"version": version, "grades": grade_estimators(plugin.load("conform")())}
        RECORD.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    PAGE.write_text(fill(PAGE.read_text("utf-8"), found), "utf-8")
