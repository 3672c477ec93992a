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


def append_line(path: Path, line: str) -> None:
    """Append a line to a file that exists.

    Raises:
        OSError: The file cannot be written, or was removed; the error names it.
    """
    with named(path), open(os.open(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as file:
        file.write(line + "\n")


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
        DataError: A complete line is not JSON; the message names the file and the line.
    """
    rows = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                try:
                    rows.append(read_json(line))
                except ValueError as error:
                    raise DataError(f"{path}, line {number} is damaged: {error}") from None
    return rows


class Claim:
    """The folder of a run, which is locked by `claimed`.

    Args:
        folder: The folder.
        what: Kind of run, for messages.
    """

    def __init__(self, folder: Path, what: str) -> None:
        self._folder, self._what = folder, what
        self._identity = os.stat(folder)

    def check(self) -> None:
        """Check that the folder is still in its place.

        Raises:
            ConfigError: It was removed, moved, or replaced, and with it what the run had written.
        """
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(self._folder), self._identity):
                return
        raise ConfigError(
            f"{self._folder} was removed or moved during the {self._what}, and with it the files of the run"
        )


@contextlib.contextmanager
def claimed(folder: Path, what: str) -> Iterator[Claim]:
    """Lock the folder of a run while the ``with`` block runs.

    Args:
        folder: The folder; created if missing.
        what: Kind of run, for messages.

    Raises:
        ConfigError: Another run holds the lock, the folder cannot be written, it holds a link to a file,
            through which the run would write, or it is no longer there at the end of the block.
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
        claim = Claim(folder, what)
        yield claim
        claim.check()
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
    return (part.encode(errors="backslashreplace") if isinstance(part, str) else part for part in parts)
