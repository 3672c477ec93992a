"""The state of a database as digests, which are compared to grade it.

What a database holds and does decides, not how it is declared. The order of rows does not matter, nor does
the declaration of a table as long as its columns have the same names. A whole number equals a fraction of the
same value. An index that is not unique changes nothing and is not compared. A unique index and a constraint
in the table are the same.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from gem_envs.tools.mcp._database import opened, statements

_MOST_ROWS = 100_000
_MOST_NAMES = 100
_ERROR = "an error"


class TooLong(Exception):
    """Raised when a query uses up the CPU time, whose results then say nothing."""


def state(path: str | Path, probes: Iterable[str], tables: Collection[str] | None) -> dict[str, str]:
    """Return a digest of each table, view, set of unique keys, and probe, by name.

    Rows are read one at a time, and only their digests are kept.

    Args:
        path: File of a database.
        probes: SQL whose effects are part of the state; see `gem_envs._databases.task.DatabaseTask`.
        tables: Tables whose unique keys and triggers are part of the state; None means all.

    Raises:
        sqlite3.Error: The file cannot be read.
        TooLong: Reading takes too long.
    """
    state: dict[str, str] = {}
    with opened(path) as link:
        listed = link.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY name").fetchall()
        for kind, name, table in listed:
            if kind == "trigger" and (tables is None or table in tables):
                state[f"triggers of {table}"] = "some"  # whatever their number: probes show what they do
            if name.startswith("sqlite_") or kind not in ("table", "view"):
                continue
            state[f"{kind} {name}"] = _outcome(link, f"SELECT * FROM {_quoted(name)}")
            if kind == "table" and (tables is None or name in tables) and (keys := _unique_keys(link, name)):
                state[f"unique keys of {name}"] = keys
    for number, probe in enumerate(probes, 1):
        state[f"probe {number}"] = _tried(path, probe)
    return state


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the names of what differs between two states."""
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def unlike(path: str, probes: list[str], tables: list[str] | None, expected: Mapping[str, str]) -> list[str]:
    """Return the names of what differs from an expected state, of bounded size."""
    names = differing(state(path, probes, tables), expected)
    return [name[:200].encode("utf-8", "replace").decode() for name in names[:_MOST_NAMES]]


def _unique_keys(link: sqlite3.Connection, table: str) -> str:
    """Return the columns of each unique index and constraint, and whether it has a condition.

    The primary key is left out, because its index depends on the type of its column.
    """
    indices = link.execute(f"PRAGMA index_list({_quoted(table)})").fetchall()
    keys = {
        (tuple(row[2] for row in link.execute(f"PRAGMA index_info({_quoted(name)})")), bool(partial))
        for _, name, unique, origin, partial in indices
        if unique and origin != "pk"
    }
    return _digest(sorted(map(repr, keys))) if keys else ""


def _quoted(name: object) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _outcome(link: sqlite3.Connection, query: str) -> str:
    """Return a digest of the names of the columns and of the rows in any order."""
    rows: list[str] = []
    try:
        cursor = link.execute(query)
        for row in cursor:
            if len(rows) == _MOST_ROWS:
                return "more rows than are compared"
            rows.append(_digest([repr([_plain(value) for value in row])]))
    except sqlite3.Error as error:
        if "interrupted" in str(error):
            raise TooLong("it takes too long to read") from None
        return _ERROR
    names = [column[0] for column in cursor.description or ()]
    return _digest([repr(names), *sorted(rows)])


def _digest(parts: Iterable[str]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()


def _plain(value: object) -> object:
    return round(float(value), 6) if isinstance(value, int | float) else value


def _tried(path: str | Path, probe: str) -> str:
    """Return the effects of a script, which is rolled back."""
    try:
        with opened(path, write=True) as link:
            outcomes = [_outcome(link, statement) for statement in statements(probe)]
            raise _Back(_digest(outcomes))
    except _Back as back:
        return str(back)


class _Back(Exception):
    """Raised to roll back a transaction."""
