"""`check_links`: a folder from outside holds only its own files."""

from __future__ import annotations

from pathlib import Path

from gem_core.errors import DataError


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
