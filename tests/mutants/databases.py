"""Mutants of the database tasks: the reference's SQL with one token changed, or without a part."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gem_envs._databases.task import DatabaseTask, build, unlike_solution
from gem_envs.tools.mcp._database import opened, statements
from tests.mutants.tokens import mutants

_PARTS = {
    "without WHEN": r" WHEN .*?(?= BEGIN)",
    "without CHECK": r" CHECK \(.*?\)",
    "without REFERENCES": r" REFERENCES \w+\(\w+\)",
    "without NOT NULL": r" NOT NULL",
    "without OF": r" OF \w+",
    "without HAVING": r" HAVING .*?(?=;)",
    "without last condition": r" AND (?!.* AND )[^;()]*",
}

EQUIVALENT = {
    "merge_customers": ("96 lower becomes upper",),  # both make letter case the same
    "phone_log": ("43 old becomes new", "without OF 0"),  # the id stays the same; WHEN sees the same
    "free_hours": ("86 plus one", "86 minus one"),  # the 1 of an EXISTS
    "odometers": ("37 < becomes <=", "42 max becomes min"),  # equal numbers stay; the update sets the largest
    "missing_drivers": ("63 plus one", "63 minus one"),  # the 1 of an EXISTS
    "close_depot": ("46 plus one", "103 plus one"),  # the limit of a query that gives one value
    "reports": ("53 avg becomes max",),  # both are NULL without grades
    "prerequisites": ("31 plus one", "31 minus one"),  # the 1 of an EXISTS
}
"""Changes that never change the result, by task."""


def changed_scripts(solution: str) -> Iterator[tuple[str, str]]:
    """Return changed solutions by the place and kind of the change."""
    yield from mutants(solution)
    for name, pattern in _PARTS.items():
        for place, found in enumerate(re.finditer(pattern, solution)):
            yield f"{name} {place}", solution[: found.start()] + solution[found.end() :]
    parts = list(statements(solution))
    for place in range(len(parts) if len(parts) > 1 else 0):
        yield f"without statement {place}", ";".join([*parts[:place], *parts[place + 1 :]])


def judged(name: str, task: DatabaseTask, folder: Path) -> dict[str, bool]:
    """Return whether a task pays each wrong mutant of its solution that runs; a question has none."""
    verdicts: dict[str, bool] = {}
    if task.answer is not None:
        return verdicts
    path = folder / "mutant.db"
    for kind, script in changed_scripts(task.solution):
        if kind in EQUIVALENT.get(name, ()):
            continue
        build(path, task.setup)
        try:
            with opened(path, write=True, seconds=0.5) as link:
                for statement in statements(script):
                    link.execute(statement)
        except sqlite3.Error:
            continue
        verdicts[kind] = not unlike_solution(path, task)
    return verdicts
