"""SQLite databases for models: opened under limits, with results as text tables.

A statement can reach no file except the database and cannot grow it without bound. A long series of steps is
interrupted; `gem_envs.tools.mcp._limited` also ends a single step that takes too long, and bounds memory.
Uses only the standard library.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SECONDS = 5.0
"""CPU time of a call, in seconds."""
_STEPS = 20_000
"""Number of steps of SQLite's virtual machine between two checks of the time limit."""
_MOST_PAGES = 16_384
MOST_BYTES = _MOST_PAGES * 4096
"""Maximum size of a database, in bytes."""
_MOST_TEXT = 200_000
"""Maximum number of characters of the results of a call."""
_LONGEST_VALUE = 2**20
_PRAGMAS = frozenset((
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list",
    "foreign_key_check", "integrity_check", "quick_check",
))  # fmt: skip
_REFUSED = frozenset((sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION))

_folders: dict[int, str] = {}


def folder() -> str:
    """Return the database folder of this process, which is removed when it exits."""
    process = os.getpid()
    if process not in _folders:
        _folders[process] = tempfile.mkdtemp(prefix="gem-databases-")
        atexit.register(_remove, process)
    return _folders[process]


def _remove(process: int) -> None:
    if process == os.getpid():
        shutil.rmtree(_folders[process], ignore_errors=True)


def path_of(folder: str | Path, name: str) -> Path:
    """Return the file of a database.

    Raises:
        ValueError: The name is invalid.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name):
        raise ValueError(f"database {name[:80]!r}: expected letters, digits, '_', and '-'")
    return Path(folder, f"{name}.db")


@contextlib.contextmanager
def opened(
    path: str | Path, *, write: bool = False, seconds: float = SECONDS
) -> Iterator[sqlite3.Connection]:
    """Open a connection for statements of a model.

    Changes are committed at the end, or rolled back if an error is raised inside.

    Args:
        path: File of an existing database.
        write: Whether the database can be changed.
        seconds: Limit of CPU time for everything done with the connection, in seconds, so that the load of
            the machine decides nothing; also the wait for another connection.

    Raises:
        sqlite3.Error: The database cannot be opened.
    """
    link = sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=seconds)
    try:
        link.execute("PRAGMA foreign_keys = ON")
        link.execute("PRAGMA synchronous = OFF")
        link.execute("PRAGMA temp_store = MEMORY")  # where the limit of memory holds
        link.execute(f"PRAGMA max_page_count = {_MOST_PAGES}")
        if not write:
            link.execute("PRAGMA query_only = ON")
        if sys.version_info >= (3, 11):
            link.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        end = time.thread_time() + seconds
        link.set_progress_handler(lambda: time.thread_time() > end, _STEPS)
        link.execute("BEGIN")
        link.set_authorizer(_allowed)
        yield link
        link.set_authorizer(lambda *_: sqlite3.SQLITE_OK)  # None requires Python 3.11
        link.set_progress_handler(None, 0)
        if link.in_transaction:  # a conflict clause may have ended the transaction
            link.execute("COMMIT")
    finally:
        link.close()


def _allowed(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action in _REFUSED or (action == sqlite3.SQLITE_PRAGMA and str(first).lower() not in _PRAGMAS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def statements(sql: str) -> Iterator[str]:
    """Iterate over the statements of a script."""
    waiting = ""
    for piece in re.split(r"(?<=;)", sql):
        waiting += piece
        if sqlite3.complete_statement(waiting):
            yield waiting
            waiting = ""
    if waiting.strip():
        yield waiting


def run_sql(path: str, sql: str, write: bool) -> str:
    """Run the statements of a call in one transaction, and return their results as text.

    Raises:
        sqlite3.Error: A statement failed; nothing was changed.
        ValueError: There is no statement, or there are several in a call that only reads.
        MemoryError: A statement needs more memory than the process may use.
    """
    parts = list(statements(sql))
    if not parts:
        raise ValueError("there is no SQL statement")
    if not write and len(parts) > 1:
        raise ValueError("query takes one statement; use execute for several")
    results: list[str] = []
    with opened(path, write=write) as link:
        for part in parts:
            cursor = link.execute(part)
            left = _MOST_TEXT - sum(map(len, results))
            if cursor.description is not None:
                results.append(shown(cursor, left))
            elif cursor.rowcount >= 0 and left > 0:
                results.append(f"Rows changed: {cursor.rowcount}.")
    return "\n".join(results) or "Done."


def shown(cursor: sqlite3.Cursor, letters: int = _MOST_TEXT, most: int = 200) -> str:
    """Format the rows of a result as lines of values separated by bars, after a line of column names."""
    lines = [" | ".join(column[0] for column in cursor.description)[: max(0, letters)]]
    length = len(lines[0])
    for row in cursor:  # one at a time: a value may be large
        if len(lines) > most:
            lines.append(f"(There are more than {most} rows.)")
            break
        lines.append(" | ".join(map(_value, row)))
        length += len(lines[-1])
        if length > letters:
            lines[-1] = "(The rest of the result is too long.)"
            break
    return "\n".join(lines if len(lines) > 1 else [*lines, "(no rows)"])


def _value(value: object) -> str:
    if value is None:
        return "NULL"
    text = f"x'{value[:50].hex()}'" if isinstance(value, bytes) else str(value)
    return text if len(text) <= 500 else f"{text[:500]}..."
