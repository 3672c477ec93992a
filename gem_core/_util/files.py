"""Atomic file writes, and run folders that only one run at a time may write to."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gem_core._util.foreign_json import read_json
from gem_core.errors import ConfigError, DataError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write_atomically(path: str | Path, parts: Iterable[str | bytes]) -> None:
    """Write `parts` to `path` atomically: on failure, an existing file stays unchanged.

    Missing parent folders are created. A target that is not a regular file (``/dev/stdout``, a named pipe) is
    written to directly, because it cannot be replaced. If several processes or machines write at the same
    time, the last writer wins.

    Args:
        path: Path of the file; an existing file is replaced.
        parts: Text (written as UTF-8) or bytes, in order.

    Raises:
        OSError: The file cannot be written; the error names it, and no temporary file remains.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with open(target, "wb") as file:
            file.writelines(_encoded(parts))
        return
    target = target.resolve()  # the file behind a symbolic link, not the link, is replaced
    target.parent.mkdir(parents=True, exist_ok=True)
    # The process id would not be unique: threads share it, and two containers may have the same one.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.writelines(_encoded(parts))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:  # name the requested file; a full disk names none
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        temporary.unlink(missing_ok=True)


PAGE_MARK = '<meta name="generator" content="gem-core">'
"""Text near the start of every page that this package writes."""


def check_page(path: str | Path) -> None:
    """Check that a page may be written: over nothing, an empty file, a page of this package, or to a stream.

    Raises:
        ConfigError: There is a link, another file, or something that is not a file.
    """
    path = Path(path)
    if path.parts[:2] in (("/", "dev"), ("/", "proc")):
        return
    if path.is_symlink():
        raise ConfigError(f"{path} is a link, and no page is written through it; choose a page with --out")
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return
    start = ""
    if path.is_file():
        with open(path, encoding="utf-8", errors="replace") as file:
            start = file.read(500)
    if PAGE_MARK not in start:
        raise ConfigError(f"{path} is not a page of gem-core; choose another page with --out")


def check_links(folder: Path) -> None:
    """Check that everything below a folder is a file or folder in it, with all links followed.

    Raises:
        DataError: A link leads out of the folder, to nothing, or in a circle, or there is a pipe or device.
    """
    root = folder.resolve()
    for path in folder.rglob("*"):
        try:
            inside = not path.is_symlink() or path.resolve(strict=True).is_relative_to(root)
        except (OSError, RuntimeError):
            inside = False
        if not inside:
            raise DataError(f"{path.relative_to(folder)} is a link out of its folder, or to nothing")
        if not (path.is_file() or path.is_dir()):
            raise DataError(f"{path.relative_to(folder)} is neither a file nor a folder")


def write_json_lines(path: str | Path, rows: Iterable[Any]) -> None:
    """Write rows as JSON Lines, atomically; see `write_atomically`."""
    write_atomically(path, (json.dumps(row) + "\n" for row in rows))


def read_json_lines(path: str | Path) -> list[Any]:
    """Return the rows of a JSON Lines file, without an incomplete last line.

    A last line is incomplete while a process writes it, or if the process was killed at that moment.

    Raises:
        OSError: The file cannot be read.
        ValueError: A complete line is not JSON.
    """
    with open(path, encoding="utf-8") as file:
        return [read_json(line) for line in file if line.endswith("\n")]


@contextlib.contextmanager
def claimed(folder: Path, what: str) -> Iterator[None]:
    """Lock the folder of a run while the ``with`` block runs.

    Args:
        folder: The folder; created if missing.
        what: Kind of run, for messages.

    Raises:
        ConfigError: Another run holds the lock, the folder cannot be written, or it holds a link to a file,
            through which the run would write.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if links := sorted(one.name for one in folder.iterdir() if one.is_symlink() and not one.is_dir()):
            raise ConfigError(f"{folder / links[0]} is a link, and a {what} writes only files; delete it")
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ConfigError(f"the folder {folder} cannot be written: {error.strerror}") from error
    try:
        if fcntl is not None:
            try:
                _lock(lock)
            except BlockingIOError:
                raise ConfigError(
                    f"another {what} is running in {folder}; wait until it ends, or choose another folder"
                ) from None
            except OSError:  # a file system without locks
                pass
        yield
    finally:
        os.close(lock)


def _lock(file: int) -> None:
    """Lock a file; try several times, because `is_claimed` in another process holds the lock briefly."""
    for wait in (0.01, 0.1):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(wait)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_claimed(folder: Path) -> bool:
    """Return whether a run holds the lock of `claimed`; False on systems without such locks."""
    try:
        lock = os.open(folder / ".lock", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe would block
    except OSError:
        return False
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(lock)


def _encoded(parts: Iterable[str | bytes]) -> Iterable[bytes]:
    return (part.encode() if isinstance(part, str) else part for part in parts)
