"""Files and folders of a run, written atomically."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core._util.messages import error_text
from gem_core.errors import CheckpointError


@contextlib.contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `target` when the block ends without an error.

    Raises:
        CheckpointError: The folder cannot be written; `target` is unchanged.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
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
    except OSError as error:
        raise CheckpointError(f"cannot write {target}: {reason(error)}") from error
    except Exception as error:
        if not _is_failed_write(error):
            raise
        raise CheckpointError(f"cannot write {target}: {reason(error)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
    """Return the text of an error without the name of the file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return error_text(error)


def _sync(folder: Path) -> None:
    """Flush the files to disk before the rename makes them visible."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_failed_write(error: Exception) -> bool:
    """Return whether an error of torch or safetensors, neither of which raises OSError, is a failed write."""
    signs = ("SafetensorError", "file write failed", "PytorchStreamWriter")
    return any(sign in f"{type(error).__name__} {error}" for sign in signs)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
