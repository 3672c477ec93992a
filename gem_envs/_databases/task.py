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

from gem_core.errors import EnvError
from gem_envs._databases.state import differing, state
from gem_envs._drawn import Drawn
from gem_envs.tools.mcp._database import SECONDS, opened, statements
from gem_envs.tools.mcp._limited import LimitedError, run_limited


@dataclass(frozen=True)
class DatabaseTask:
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


TASKS: Drawn[DatabaseTask] = Drawn(
    "gem_envs._databases.tasks", ("shop", "library", "clinic", "fleet", "school")
)  # fmt: skip


def task(maker: Callable[[Random], DatabaseTask]) -> Callable[[Random], DatabaseTask]:
    """Register a task, and draw a prefix for its tables, so that the SQL of one seed fails on the others."""

    @wraps(maker)
    def prefixed(random: Random) -> DatabaseTask:
        return with_prefix(maker(random), f"{random.choice('abcdefghkmnprstuvw')}{random.randint(2, 9)}_")

    return TASKS.add(prefixed)


def with_prefix(task: DatabaseTask, prefix: str) -> DatabaseTask:
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

    See `gem_envs._databases.state` for what counts.

    Args:
        database: File of a database.
        target: File of the database that it should be like.
        probes: SQL that must have the same effect on both.
        tables: Tables whose unique keys and triggers are compared. None means all. Only probes show those of
            a new table, since a trigger or an index with a condition can have the same effect.
    """
    return differing(state(database, probes, tables), state(target, probes, tables))


def unlike_solution(database: Path, task: DatabaseTask) -> list[str]:
    """Return the differences from the state after the reference solution of `task`; see `differences`.

    The database, which a model has changed, is read in another process, under the limits of a call.

    Raises:
        EnvError: That process ended, so that there is no verdict.
    """
    solved = _solved(task.setup, task.solution, task.probes)
    try:
        names: list[str] = run_limited(
            "gem_envs._databases.state:unlike", SECONDS, path=str(database), probes=list(task.probes),
            tables=sorted(_tables(task.setup)), expected=solved,
        )  # fmt: skip
    except LimitedError as error:
        if error.kind == "process":
            raise EnvError(f"the database is not graded: {error}") from None
        return [f"the database cannot be read ({error})"]
    return names


@lru_cache(maxsize=64)
def _solved(setup: str, solution: str, probes: tuple[str, ...]) -> dict[str, str]:
    """Return the state after the reference solution; an episode is often graded more than once."""
    with TemporaryDirectory(prefix="gem-core-database-") as folder:
        path = Path(folder) / "solved.db"
        build(path, setup)
        change(path, solution)
        return state(path, probes, _tables(setup))


def _tables(setup: str) -> frozenset[str]:
    return frozenset(re.findall(r"CREATE TABLE (\w+)", setup))


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
