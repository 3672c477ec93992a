"""Files that go into the folder of a program and come out of it."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gem_core.errors import SandboxError


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for a program, removed with all that it has put there."""
    folder = tempfile.mkdtemp(prefix="gem-sandbox-")
    try:
        yield Path(folder)
    finally:
        remove_folder(folder)


def remove_folder(folder: str) -> None:
    """Remove a folder, however deep; links are not followed, and what cannot be removed stays.

    Every folder is moved up to the top before it is emptied, so that neither the depth of the call stack
    nor the number of open files grows with that of the folders.
    """
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)  # a program may have taken its rights
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        prefix = f".{secrets.token_hex(8)}-"  # no name that a program can have taken
        try:
            moved = _empty(top, top, prefix, 0)
            done = 0
            while done < moved:
                name = f"{prefix}{done}"
                done += 1
                with contextlib.suppress(OSError):
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                    try:
                        moved = _empty(inner, top, prefix, moved)
                    finally:
                        os.close(inner)
                    os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(folder)


def _empty(folder: int, top: int, prefix: str, moved: int) -> int:
    """Remove the files of a folder and move its folders to the top; how many have been moved by now."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with contextlib.suppress(OSError):
            if is_folder:
                os.chmod(name, 0o700, dir_fd=folder)  # it may have been made unreadable
                os.rename(name, f"{prefix}{moved}", src_dir_fd=folder, dst_dir_fd=top)
                moved += 1
            else:
                os.unlink(name, dir_fd=folder)
    return moved


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
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: links in a circle
            inside = path.parent.resolve().is_relative_to(folder.resolve())
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
