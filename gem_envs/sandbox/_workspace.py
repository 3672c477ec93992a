"""Working folders of programs: creating them, filling them, and fetching files from them."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gem_core.errors import SandboxError


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Provide a folder for a program, removed afterwards with everything in it."""
    folder = tempfile.mkdtemp(prefix="gem-sandbox-")
    try:
        yield Path(folder)
    finally:
        remove_folder(folder)


def remove_folder(folder: str) -> None:
    """Remove a folder of any depth without following links; skip everything that cannot be removed.

    Every subfolder is moved to the top before it is emptied, so that neither the call stack nor the number of
    open files grows with the depth.
    """
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)  # a program may have removed its own permissions
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        prefix = f".{secrets.token_hex(8)}-"  # a name that no program can have used
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
    """Remove the files of a folder and move its folders to the top; return the number moved so far."""
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        with contextlib.suppress(OSError):
            if is_folder:
                os.chmod(name, 0o700, dir_fd=folder)  # the program may have made it unreadable
                os.rename(name, f"{prefix}{moved}", src_dir_fd=folder, dst_dir_fd=top)
                moved += 1
            else:
                os.unlink(name, dir_fd=folder)
    return moved


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a program into its folder.

    Raises:
        SandboxError: A path leads out of the folder.
    """
    for name, data in files.items():
        path = folder / relative(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read_files(folder: Path, names: Sequence[str], max_bytes: int) -> dict[str, bytes]:
    """Return the named files that exist, at most `max_bytes` of each, without following links."""
    contents = {}
    for name in names:
        path = folder / relative(name)
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: circular links
            if not path.parent.resolve().is_relative_to(folder.resolve()):
                continue
            # Without blocking, since a process that is left may put a pipe there at any time.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    contents[name] = file.read(max_bytes)
    return contents


def relative(name: str) -> str:
    """Return `name` if it is a path inside a folder.

    Raises:
        SandboxError: The path is absolute, empty, or contains ``..`` or control characters.
    """
    if not name or name.startswith("/") or ".." in name.split("/") or "\n" in name or "\0" in name:
        raise SandboxError(f"file {name!r}: expected a relative path without '..'")
    return name
