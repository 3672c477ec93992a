"""Atomic file writes."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def write_atomically(path: str | Path, parts: Iterable[str | bytes]) -> None:
    """Write `parts` to `path` atomically: on failure, an existing file stays unchanged.

    Missing parent folders are created. A target that is not a regular file (``/dev/stdout``, a named pipe) is
    written to directly, because it cannot be replaced. If several processes or machines write at the same
    time, the last writer wins.

    Args:
        path: Path of the file; an existing file is replaced.
        parts: Text or bytes, in order. Text is written as UTF-8, and lone surrogates, such as those for
            bytes of a path that are not UTF-8, as escapes.

    Raises:
        OSError: The file cannot be written; the error names it, and no temporary file remains.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with named(target), open(target, "wb") as file:
            file.writelines(_encoded(parts))
        return
    target = target.resolve()  # the file behind a symbolic link, not the link, is replaced
    target.parent.mkdir(parents=True, exist_ok=True)
    # The process id would not be unique: threads share it, and two containers may have the same one. The name
    # of the target may be as long as names can be.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    with named(target, temporary):
        try:
            with open(temporary, "xb") as file:
                file.writelines(_encoded(parts))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):  # on a read-only file system, also if there is none
                temporary.unlink()


@contextlib.contextmanager
def named(path: str | Path, *others: Path) -> Iterator[None]:
    """Let the OSErrors in the ``with`` block name `path` if they name no file, or one of `others`.

    The errors of a full disk name none.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, *map(str, others)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_json_lines(path: str | Path, rows: Iterable[Any]) -> None:
    """Write rows as JSON Lines, atomically; see `write_atomically`."""
    write_atomically(path, (json.dumps(row) + "\n" for row in rows))


def _encoded(parts: Iterable[str | bytes]) -> Iterable[bytes]:
    return (part.encode(errors="backslashreplace") if isinstance(part, str) else part for part in parts)
