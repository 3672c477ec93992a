"""A database task: a database, an instruction, and the state after the reference solution."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from gem_core.envs.drawn import Drawn
from gem_core.tools.mcp.database import opened, statements

_MOST_ROWS = 100_000


@dataclass(frozen=True)
class Task:
    """One task with its names and numbers drawn.

    Attributes:
        instruction: Instruction for the player.
        setup: SQL that creates the database.
        solution: SQL of the reference solution.
        wrong: SQL whose results are close but wrong; grading rejects each of them.
        answer: Required content of the box; None if the box only says that the task is done.
        wrong_answers: Answers that are close but wrong.
        probes: SQL that must have the same effect on the resulting database as on the reference: return the
            same rows, or fail. Probes test properties that rows do not show, such as a constraint or a
            trigger.
    """

    instruction: str
    setup: str
    solution: str
    wrong: tuple[str, ...]
    answer: str | None = None
    wrong_answers: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()


TASKS: Drawn[Task] = Drawn(
    "gem_core.envs.databases.tasks", ("shop", "library", "clinic", "fleet", "school")
)  # fmt: skip


def task(maker: Callable[[Random], Task]) -> Callable[[Random], Task]:
    """Register a task, and draw a prefix for its tables, so that the SQL of one seed fails on the others."""

    @wraps(maker)
    def prefixed(random: Random) -> Task:
        return with_prefix(maker(random), f"{random.choice('abcdefghkmnprstuvw')}{random.randint(2, 9)}_")

    return TASKS.add(prefixed)


def with_prefix(task: Task, prefix: str) -> Task:
    """Return a task in which the names of all tables and views begin with `prefix`.

    The instruction says so, and leaves the prefix out otherwise. A name in quotation marks or after ``AS`` is
    not that of a table.
    """
    scripts = (task.setup, task.solution, *task.wrong, *task.probes)
    names = re.findall(r"CREATE (?:TABLE|VIEW) (\w+)", " ".join(scripts))
    table = re.compile(rf"(?<!AS )(?<![\w'])(?:{'|'.join(names)})(?![\w'])")
    setup, solution, *others = (table.sub(rf"{prefix}\g<0>", script) for script in scripts)
    return replace(
        task,
        instruction=f"Put {prefix} before every name of a table or view below, as in {prefix}{names[0]}. "
        f"{task.instruction}",
        setup=setup,
        solution=solution,
        wrong=tuple(others[: len(task.wrong)]),
        probes=tuple(others[len(task.wrong) :]),
    )


def build(path: Path, script: str) -> None:
    """Create a database at `path` from SQL, replacing any existing file."""
    path.unlink(missing_ok=True)
    link = sqlite3.connect(path)
    try:
        link.execute("PRAGMA synchronous = OFF")
        link.executescript(f"BEGIN;\n{script}\nCOMMIT;")
    finally:
        link.close()


def change(path: Path, script: str) -> None:
    """Run SQL on a database under the limits that apply to a model."""
    with opened(path, write=True) as link:
        for statement in statements(script):
            link.execute(statement)


def differences(
    database: Path, target: Path, probes: Sequence[str] = (), tables: Collection[str] | None = None
) -> list[str]:
    """Return the names of the tables, views, unique keys, and probes in which two databases differ.

    What the databases hold and do decides, not how it is declared. The order of rows does not matter, nor
    does the declaration of a table as long as its columns have the same names. A whole number equals a
    fraction of the same value. An index that is not unique changes nothing and is not compared. A unique
    index and a constraint in the table are the same.

    Args:
        database: File of a database.
        target: File of the database that it should be like.
        probes: SQL that must have the same effect on both.
        tables: Tables whose unique keys and triggers are compared. None means all. Only probes show those of
            a new table, since a trigger or an index with a condition can have the same effect.
    """
    return _differing(_state(database, probes, tables), _state(target, probes, tables))


def unlike_solution(database: Path, task: Task) -> list[str]:
    """Return the differences from the state after the reference solution of `task`; see `differences`."""
    solved = _solved(task.setup, task.solution, task.probes)
    return _differing(_state(database, task.probes, _tables(task.setup)), solved)


@lru_cache(maxsize=64)
def _solved(setup: str, solution: str, probes: tuple[str, ...]) -> dict[str, Any]:
    """Return the state after the reference solution; an episode is often graded more than once."""
    with TemporaryDirectory(prefix="gem-core-database-") as folder:
        path = Path(folder) / "solved.db"
        build(path, setup)
        change(path, solution)
        return _state(path, probes, _tables(setup))


def _tables(setup: str) -> frozenset[str]:
    return frozenset(re.findall(r"CREATE TABLE (\w+)", setup))


def _differing(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def _state(path: Path, probes: Iterable[str], tables: Collection[str] | None) -> dict[str, Any]:
    state: dict[str, Any] = {}
    with opened(path) as link:
        listed = link.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY name").fetchall()
        for kind, name, table in listed:
            if kind == "trigger" and (tables is None or table in tables):
                state[f"triggers of {table}"] = True  # whatever their number: probes show what they do
            if name.startswith("sqlite_") or kind not in ("table", "view"):
                continue
            state[f"{kind} {name}"] = _outcome(link, f"SELECT * FROM {_quoted(name)}")
            if kind == "table" and (tables is None or name in tables) and (keys := _unique_keys(link, name)):
                state[f"unique keys of {name}"] = keys
    for number, probe in enumerate(probes, 1):
        state[f"probe {number}"] = _tried(path, probe)
    return state


def _unique_keys(link: sqlite3.Connection, table: str) -> set[tuple[tuple[str | None, ...], bool]]:
    """Return the columns of each unique index and constraint, and whether it has a condition.

    The primary key is left out, because its index depends on the type of its column.
    """
    return {
        (tuple(row[2] for row in link.execute(f"PRAGMA index_info({_quoted(name)})")), bool(partial))
        for _, name, unique, origin, partial in link.execute(
            f"PRAGMA index_list({_quoted(table)})"
        ).fetchall()
        if unique and origin != "pk"
    }


def _quoted(name: object) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _outcome(link: sqlite3.Connection, query: str) -> tuple[list[str], list[str]] | str:
    try:
        cursor = link.execute(query)
        rows = cursor.fetchmany(_MOST_ROWS)
    except sqlite3.Error:
        return "error"
    names = [column[0] for column in cursor.description or ()]
    return names, sorted(repr([_plain(value) for value in row]) for row in rows)


def _plain(value: object) -> object:
    return round(float(value), 6) if isinstance(value, int | float) else value


def _tried(path: Path, probe: str) -> Any:
    """Return the effects of a script, which is rolled back."""
    try:
        with opened(path, write=True) as link:
            outcomes = [_outcome(link, statement) for statement in statements(probe)]
            raise _Back(outcomes)
    except _Back as back:
        return back.args[0]


class _Back(Exception):
    """Raised to roll back a transaction."""


# -- helpers for tasks ----------------------------------------------------------------------------


def table(name: str, columns: str, rows: Iterable[Sequence[Any]]) -> str:
    """Return SQL that creates a table and its rows."""
    values = ",\n".join("(" + ", ".join(map(_literal, row)) + ")" for row in rows)
    return f"CREATE TABLE {name} ({columns});\n" + (
        f"INSERT INTO {name} VALUES {values};\n" if values else ""
    )


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"
