"""Files that go into the folder of a program and come out of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gem_core.errors import SandboxError


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put the files of a program into its folder.

    Raises:
        SandboxError: A path that leads out of the folder.
    """
    for name, data in files.items():
        path = folder / relative(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read_files(folder: Path, names: Sequence[str], most: int) -> dict[str, bytes]:
    """Those that a program has written; links are not followed, and no more than `most` bytes are read."""
    found = {}
    for name in names:
        path = folder / relative(name)
        inside = path.parent.resolve().is_relative_to(folder.resolve())
        with contextlib.suppress(OSError):
            if inside and path.is_file() and not path.is_symlink():
                with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    found[name] = file.read(most)
    return found


def relative(name: str) -> str:
    """`name`, if it is a path inside a folder.

    Raises:
        SandboxError: It is not.
    """
    if not name or name.startswith("/") or ".." in name.split("/") or "\n" in name or "\0" in name:
        raise SandboxError(f"{name!r}: files of a sandbox have relative paths without '..'")
    return name
