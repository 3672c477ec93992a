"""Folders that only one run at a time may write to, and their JSON Lines files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gem_core._util.files import named
from gem_core._util.foreign_json import read_json
from gem_core.errors import ConfigError, DataError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def append_line(path: Path, line: str) -> None:
    """Append a line to a file that exists.

    Raises:
        OSError: The file cannot be written, or was removed; the error names it.
    """
    with named(path), open(os.open(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as file:
        file.write(line + "\n")


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
