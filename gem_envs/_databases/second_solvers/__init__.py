"""Second solvers of database tasks, for `Env.verify`: they follow the instruction in Python, not in SQL.

A solver reads the instruction and the initial tables, as a player does. It reads neither the reference
solution nor the stored answer.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing

from gem_envs._databases.second_solvers.changes import CHANGES
from gem_envs._databases.second_solvers.questions import QUESTIONS
from gem_envs._databases.second_solvers.tables import AmbiguousTask, Tables, read
from gem_envs.tools.mcp._database import opened

__all__ = ["judged", "judged_file"]

_PREFIX = re.compile(r"Put (\w+_) before every name of a table or view below, as in \w+\. (.*)", re.DOTALL)


def judged_file(instruction: str, setup: str, path: str, answer: str) -> bool | None:
    """Return the result of `judged` for the file of a model; False if it cannot be read.

    The rows of a model are read whole, so call this with `gem_envs.tools.mcp._limited.run_limited`.
    """
    try:
        with closing(sqlite3.connect(":memory:")) as start, opened(path) as end:
            start.executescript(setup)
            return judged(instruction, start, end, answer)
    except sqlite3.Error:
        return False


def judged(instruction: str, start: sqlite3.Connection, end: sqlite3.Connection, answer: str) -> bool | None:
    """Return whether a database and an answer are what an instruction requires.

    Args:
        instruction: Instruction for the player.
        start: The initial database.
        end: The database at the end.
        answer: Content of the box.

    Returns:
        False also if the task has no result, or more than one. None for a task without a solver, such as one
        about a constraint or a trigger, whose result is what the database does later.
    """
    found = _PREFIX.fullmatch(instruction)
    if found is None:
        return None
    prefix, text = found.groups()
    tables = read(start, prefix)
    for form, solve in (QUESTIONS | CHANGES).items():
        if drawn := re.search(form, text):
            try:
                wanted = solve(tables, *drawn.groups())
            except AmbiguousTask:
                return False
            answered = wanted is None or _words(answer) == _words(wanted)
            return answered and _same(tables, read(end, prefix))
    return None


def _words(answer: str) -> list[str]:
    return answer.casefold().replace(",", " ").split()


def _same(one: Tables, other: Tables) -> bool:
    """Return whether tables have the same rows, in any order."""
    return {name: _bag(rows) for name, rows in one.items()} == {
        name: _bag(rows) for name, rows in other.items()
    }


def _bag(rows: list[dict[str, object]]) -> Counter[tuple[tuple[str, object], ...]]:
    return Counter(tuple(sorted(row.items(), key=lambda pair: pair[0])) for row in rows)
