"""Writing files so that a reader never sees half of one, and folders that one run at a time writes to."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from gem_core.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def write_atomically(path: str | Path, parts: Iterable[str | bytes]) -> None:
    """Write `parts` to `path`: the whole file appears at once, or the old one stays as it was.

    Missing parent folders are made. Something that is not a regular file (``/dev/stdout``, a named
    pipe) is written to directly, since it cannot be replaced. Of several writers at the same time, in
    one process or on several machines, the last one's file stays.

    Args:
        path: Where to; an existing file is replaced.
        parts: Text (written as UTF-8) or bytes, in order.

    Raises:
        OSError: A full disk, a folder that may not be written to; names the file, and nothing is left behind.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with open(target, "wb") as file:
            file.writelines(_encoded(parts))
        return
    target = target.resolve()  # the file behind a symbolic link, not the link, is replaced
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not the process id, which threads share and which two containers may have alike.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.writelines(_encoded(parts))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:  # name the file that was asked for: a full disk names none
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder of a run while the block runs.

    Args:
        folder: Made where it is missing.
        what: What the run is, for messages.

    Raises:
        ConfigError: Another run holds it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ConfigError(f"the folder {folder} cannot be written: {error.strerror}") from error
    try:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another {what} is running in {folder}; wait for its end, or choose another folder"
                ) from None
            except OSError:  # a file system without locks
                pass
        yield
    finally:
        os.close(lock)


def _encoded(parts: Iterable[str | bytes]) -> Iterable[bytes]:
    return (part.encode() if isinstance(part, str) else part for part in parts)
