"""`WorkingDirectory`: the working directory of this process, also if its folder is deleted or renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class WorkingDirectory:
    """The folder that is the working directory when this object is made; `close` frees its descriptor."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._path: str | None = None
        if hasattr(os, "fchdir"):
            with contextlib.suppress(OSError):  # such as a network drive that is gone
                self._descriptor = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
        else:  # Windows, where the folder cannot be deleted
            self._path = os.getcwd()

    def is_current(self) -> bool:
        """Return whether it is the working directory now, whatever its name is."""
        if self._descriptor is None:
            return self._path is None or os.getcwd() == self._path
        try:
            return os.path.samestat(os.stat("."), os.fstat(self._descriptor))
        except OSError:
            return False

    def go_back(self) -> None:
        """Make it the working directory again."""
        if self._descriptor is not None:
            os.fchdir(self._descriptor)  # type: ignore[attr-defined,unused-ignore]
        elif self._path is not None:
            os.chdir(self._path)

    def close(self) -> None:
        """Free the descriptor. May be called more than once."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@contextlib.contextmanager
def working_in(folder: Path | str) -> Iterator[None]:
    """Change the working directory while the block runs."""
    before = WorkingDirectory()
    try:
        os.chdir(folder)
        try:
            yield
        finally:
            before.go_back()
    finally:
        before.close()


def import_torch() -> None:
    """Import torch if it is installed; its library MKL ends a process whose working directory is gone.

    Raises:
        FileNotFoundError: It is gone at the start. It may be deleted during the import, which takes seconds.
    """
    os.getcwd()
    with working_in("/"), contextlib.suppress(ModuleNotFoundError):
        import torch  # noqa: F401
