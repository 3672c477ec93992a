"""Import modules of a checkout without installing it: `make_importable`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from gem_core._util.forks import ForkSafeLock

_lock = ForkSafeLock()


@contextmanager
def make_importable(
    folder: Path, packages: Sequence[str], replaced: Mapping[str, Mapping[str, object]]
) -> Iterator[None]:
    """Make a package importable from a folder, without running the ``__init__`` of its packages.

    Those import model clients, which tasks and tools do not need. Modules imported under the package's name
    before are restored afterwards.

    Args:
        folder: Folder that contains the top-level package.
        packages: The top-level package, and the packages below it whose ``__init__`` must not run.
        replaced: Names and values of the modules to replace.
    """
    top = packages[0]
    with _lock:
        before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == top}
        for name in before:
            del sys.modules[name]
        try:
            for name in packages:
                package = ModuleType(name)
                package.__path__ = [str(folder.joinpath(*name.split(".")))]
                sys.modules[name] = package
            for name, values in replaced.items():
                module = ModuleType(name)
                vars(module).update(values)
                sys.modules[name] = module
            yield
        finally:
            for name in [name for name in sys.modules if name.split(".")[0] == top]:
                del sys.modules[name]
            sys.modules.update(before)
