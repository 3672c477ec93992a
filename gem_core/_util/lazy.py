"""Names of a package that are imported on first use, because their modules need time or other packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

        __getattr__, __dir__ = lazy_names(__name__, {"gem_chat._player": ["EpisodePlayer"]})

    Args:
        package: Name of the package.
        homes: Maps modules to the public names that they define.
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def getattribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return getattribute, directory
