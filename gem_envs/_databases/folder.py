"""`SqliteFolder`: SQLite tasks from a folder, in the layout of MCPMark.

A task is a folder with ``description.md`` (the instruction), ``verify.py`` (exits with status 0 if the
database is as required) and ``meta.json``. Tasks of a category share a database: ``database.db`` or
``database.sql`` in the folder of the task, or else ``CATEGORY.db`` or ``CATEGORY.sql`` in `databases`, in the
folder of the category or next to it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gem_core._core import Split
from gem_core._util.checks import check_int
from gem_core._util.foreign_json import read_json_file
from gem_core.errors import ConfigError, DataError
from gem_envs._databases.env import Databases
from gem_envs._databases.task import DatabaseTask, build
from gem_envs._links import check_links
from gem_envs.data._split import undivided

VARIABLE = "SQLITE_DATABASE"
"""Environment variable with the path of the database, for ``verify.py``."""
_SECONDS = 120.0


class FolderEntry(NamedTuple):
    """A task in a folder."""

    path: Path
    task: DatabaseTask
    database: Path
    """An SQLite file or an SQL file."""


class SqliteFolder(Databases):
    r"""SQLite tasks from a folder, in the layout of MCPMark.

    MCPMark's own database tasks need a Postgres server, so none of them can be played.

    Action: as in `Databases`; each task ends with ``\boxed{done}``.

    Rewards: as in `Databases`, graded by the task's ``verify.py``. It runs unchanged and outside of any
    sandbox, like any program that you start: take tasks only from sources you trust.

    `max_return` is 1. The oracle runs ``ground_truth.sql`` if a task has one, and otherwise knows nothing.

    The seed draws the task; ``reset(options={"index": i})`` selects task i, in order of path.
    """

    def __init__(
        self,
        folder: str | None = None,
        databases: str | None = None,
        tasks: Sequence[str] | str | None = None,
        max_errors: int = 3,
        eval_only: bool = True,
    ) -> None:
        """Read the tasks.

        Args:
            folder: Folder that contains tasks at any depth, such as ``tasks/sqlite/standard``.
            databases: Folder with one database per category; None if they are next to the tasks.
            tasks: Names of tasks; None means all.
            max_errors: Number of responses with neither a call nor a box after which the episode is
                truncated.
            eval_only: Whether all tasks are for evaluation only; False lets all of them be trained on.

        Raises:
            ConfigError: A task is unknown or cannot be played, or `max_errors` is out of range.
            DataError: The folder has no task for SQLite; the message says why.
        """
        if folder is None or not Path(folder).is_dir():
            raise DataError(f"folder={folder!r}: expected a folder with tasks in the layout of MCPMark")
        self.set_up(check_int("max_errors", max_errors, 1))
        selection = None if tasks is None else (tasks,) if isinstance(tasks, str) else tuple(tasks)
        self.skipped: dict[str, str] = {}
        """Reasons why tasks cannot be played, by name of the task."""
        self.entries = self._read(Path(folder), None if databases is None else Path(databases), selection)
        self.num_items = len(self.entries)
        self.eval_only = eval_only

    def items(self, split: Split) -> range:
        return undivided(self.num_items, self.eval_only, split)

    def _read(self, root: Path, databases: Path | None, selection: Sequence[str] | None) -> list[FolderEntry]:
        tasks = []
        for description in sorted(root.rglob("description.md")):
            path = description.parent
            if (path / "verify.py").is_file() and (selection is None or path.name in selection):
                try:
                    tasks.append(_task(path, databases))
                except DataError as error:
                    self.skipped[path.name] = str(error)
        names = [one.path.name for one in tasks]
        if missing := [name for name in selection or () if name not in names]:
            raise ConfigError(f"task {missing[0]!r}: {self.skipped.get(missing[0], f'not in {root}')}")
        if not tasks:
            why = "; ".join(f"{name}: {reason}" for name, reason in list(self.skipped.items())[:3])
            raise DataError(f"{root} has no task for SQLite ({why or 'no task at all'})")
        return tasks

    @property
    def task(self) -> DatabaseTask:
        """The task of this episode."""
        return self.entries[self.task_index].task

    def prepare(self) -> None:
        """Create the database of the task."""
        database = self.entries[self.task_index].database
        if database.suffix == ".sql":
            build(self._path, database.read_text(encoding="utf-8"))
        else:
            shutil.copyfile(database, self._path)

    def given_bytes(self) -> int:
        return max(entry.database.stat().st_size for entry in self.entries)

    def wrong(self) -> list[str]:
        """Return the complaints of ``verify.py``."""
        path = self.entries[self.task_index].path
        try:
            done = subprocess.run(
                [sys.executable, "verify.py"], cwd=path, env={**os.environ, VARIABLE: str(self._path)},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return ["verify.py did not end"]
        return [] if done.returncode == 0 else ["verify.py"]

    def oracle_tool_call(self, uses: int) -> tuple[str, dict[str, Any]] | None:
        """Return the tool call of the reference solution if there is one."""
        return super().oracle_tool_call(uses) if self.task.solution else None

    def best_move(self) -> str | None:
        return super().best_move() if self.task.solution else None

    def table_names(self) -> list[str]:
        """Return the names of the tables."""
        link = sqlite3.connect(self._path)
        try:
            return [row[0] for row in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        finally:
            link.close()


def _task(path: Path, databases: Path | None) -> FolderEntry:
    """Read a task.

    Raises:
        DataError: The task is not for SQLite, or leads out of its folder.
    """
    check_links(path)
    meta = path / "meta.json"
    try:
        facts = read_json_file(meta) if meta.is_file() else {}
    except ValueError as error:
        raise DataError(f"meta.json cannot be read: {error}") from None
    services = facts.get("mcp", ["sqlite"]) if isinstance(facts, dict) else []
    if "sqlite" not in services:
        raise DataError(f"it is for {', '.join(map(str, services))}, not for sqlite")
    category = str(facts.get("category_id", path.parent.name))
    if Path(category).name != category:
        raise DataError(f"its category_id {category!r} is not a name")
    places = [path / "database"]
    places += [folder / category for folder in (databases, path.parent, path.parent.parent) if folder]
    files = [Path(f"{place}{ending}") for place in places for ending in (".db", ".sqlite", ".sql")]
    database = next((file for file in files if file.is_file()), None)
    if database is None:
        raise DataError(f"its database is missing: no {category}.db, .sqlite or .sql")
    if database.resolve().parent != database.parent.resolve():
        raise DataError(f"its database {database.name} is a link to another folder")
    truth = path / "ground_truth.sql"
    solution = truth.read_text(encoding="utf-8") if truth.is_file() else ""
    text = (path / "description.md").read_text(encoding="utf-8")
    return FolderEntry(path, DatabaseTask(text.strip(), "", solution, ()), database)
