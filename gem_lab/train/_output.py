"""Files and folders of a run, written atomically."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core._util.messages import error_line
from gem_core.errors import CheckpointError, GemError


@contextlib.contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `target` when the block ends without an error.

    Raises:
        CheckpointError: The folder cannot be written; `target` is unchanged. Each error in the block counts
            as a failed write, because torch, safetensors, and tokenizers report one in many types.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The prefix leaves room for the rest, as the name may be as long as names can be.
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}.", dir=target.parent))
    except OSError as error:
        raise CheckpointError(f"cannot write {target}: {error.strerror or error}") from error
    try:
        # mkdtemp creates a private folder; this one gets the default permissions.
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        for path in temporary.rglob("*"):  # safetensors writes private files
            path.chmod((0o777 if path.is_dir() else 0o666) & ~_umask())
        _sync(temporary)
        if target.exists():
            old = temporary.with_name(temporary.name + ".old")
            target.rename(old)
            temporary.rename(target)
            shutil.rmtree(old)
        else:
            temporary.rename(target)
    except GemError:
        raise
    except Exception as error:
        raise CheckpointError(f"cannot write {target}: {reason(error)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class RememberingFile:
    """A new file to give to a library that writes it: a failed write is remembered instead of raised.

    The library neither hides the reason nor replaces it by its own text.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb")  # noqa: SIM115  # closed by `close`
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write all of `data`, or nothing after a failed write; return its size in either case."""
        size = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
        return size

    def flush(self) -> None:
        """Do nothing; `close` flushes."""

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: A write failed.
        """
        try:
            self._file.close()
        except OSError as error:
            self._error = self._error or error
        if self._error is not None:
            raise self._error


def write_text(target: Path, text: str) -> None:
    """Write a file of a run atomically.

    Raises:
        CheckpointError: The file cannot be written; `target` is unchanged.
    """
    try:
        write_atomically(target, [text])
    except OSError as error:
        raise CheckpointError(f"cannot write {target}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return the text of an error without the name of the file, and with its type if it is no OSError."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return error_line(error)


def _sync(folder: Path) -> None:
    """Flush the files to disk before the rename makes them visible."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
