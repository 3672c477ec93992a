"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: str | Path, parts: Iterable[str | bytes]) -> None:
    """Write `parts` to `path`: the whole file appears at once, or the old one stays as it was.

    Missing parent folders are made. Something that is not a regular file (``/dev/stdout``, a named
    pipe) is written to directly, since it cannot be replaced.

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
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
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


def _encoded(parts: Iterable[str | bytes]) -> Iterable[bytes]:
    return (part.encode() if isinstance(part, str) else part for part in parts)
