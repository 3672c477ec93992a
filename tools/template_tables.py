"""Tables with one row per chat template, which scripts record or check: `main`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/results/chat-templates.md"

Table: TypeAlias = Mapping[str, Any]
"""Versions of the "packages", and a row for each name in "templates"."""


def main(
    about: str, path: Path, measure: Callable[[Path], Table], page_with: Callable[[str, Table], str]
) -> int:
    """Record the table and the page, or check the table; return the exit status.

    Args:
        about: Docstring of the script.
        path: JSON file of the table.
        measure: Makes the table from a folder with packages.
        page_with: Returns a page with what the table shows.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with the downloaded packages")
    parser.add_argument("--check", action="store_true", help="compare with the recorded table")
    args = parser.parse_args()
    table = measure(args.folder)
    if args.check:
        changes = changed_cells(json.loads(path.read_text(encoding="utf-8")), table)
        print("\n".join(changes) if changes else f"{len(table['templates'])} rows: no cell has changed")
        return int(bool(changes))
    path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")
    return 0


def changed_cells(recorded: Table, measured: Table) -> list[str]:
    """Return one line for each cell that differs."""
    if recorded["packages"] != measured["packages"]:
        return [f"packages: {recorded['packages']} became {measured['packages']}"]
    before, now = recorded["templates"], measured["templates"]
    lines = [f"{name}: {'new' if name in now else 'missing'}" for name in sorted(before.keys() ^ now.keys())]
    for name in sorted(before.keys() & now.keys()):
        for cell in sorted(before[name].keys() | now[name].keys()):
            one, other = before[name].get(cell), now[name].get(cell)
            if one != other:
                lines.append(f"{name}, {cell}: {one!r} became {other!r}")
    return lines


def with_section(page: str, section: str) -> str:
    """Return the page with another text for one of its last sections, which begins with its heading."""
    before, _, rest = page.partition(section.partition("\n")[0] + "\n")
    _, heading, later = rest.partition("\n## ")
    return before + section + heading + later
