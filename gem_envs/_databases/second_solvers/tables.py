"""Tables as lists of rows, and what the solvers share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

TableRow: TypeAlias = dict[str, Any]
"""Values by column."""
Tables: TypeAlias = dict[str, list[TableRow]]
"""Rows by the name of a table, or by "view" and the name of a view."""
T = TypeVar("T")


class AmbiguousTask(Exception):
    """A task has no result, or more than one."""


def read(link: sqlite3.Connection, prefix: str) -> Tables:
    """Return all tables and views, without `prefix` before their names."""
    listed = link.execute("SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    tables: Tables = {}
    for kind, name in listed:
        cursor = link.execute('SELECT * FROM "{}"'.format(name.replace('"', '""')))
        columns = [column[0] for column in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor]
        tables[("view " if kind == "view" else "") + name.removeprefix(prefix)] = rows
    return tables


def by_id(rows: Iterable[TableRow]) -> dict[Any, TableRow]:
    """Return rows by their column id."""
    return {row["id"]: row for row in rows}


def only_one(candidates: Iterable[T], measure: Callable[[T], Any]) -> T:
    """Return the candidate with the greatest measure.

    Raises:
        Unclear: There is none, or several have it.
    """
    ranked = sorted(candidates, key=measure, reverse=True)
    if not ranked or (len(ranked) > 1 and measure(ranked[0]) == measure(ranked[1])):
        raise AmbiguousTask("not exactly one")
    return ranked[0]
