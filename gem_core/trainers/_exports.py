"""Lazy imports for plugin packages, so that importing a package does not require its trainer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

from gem_core._util.messages import error_line
from gem_core.errors import UnsupportedTrainer
from gem_core.trainers._plugin import SupportedTrainer


def lazy_exports(
    trainer: SupportedTrainer, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a plugin package.

        __getattr__, __dir__ = lazy_exports(SUPPORTED, {"loop": ["GemAgentLoop"]})

    Accessing a public name raises `UnsupportedTrainer` if the trainer is missing or too old, or lacks
    something that the module imports.

    Args:
        trainer: Trainer of the package.
        modules: Maps modules of the package to the public names that they define.
    """
    package = trainer.package
    homes = {name: module for module, names in modules.items() for name in names}

    def getattribute(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        trainer.require()
        if name not in homes:
            available = f"; it has {', '.join(sorted(homes))}" if homes else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{available}")
        try:
            module = importlib.import_module(f"{package}.{homes[name]}")
        except ImportError as error:
            raise UnsupportedTrainer(
                f"{package}: {trainer.name} {trainer.installed_version() or 'from a checkout'} cannot be "
                f"used: {error_line(error)}. Supported versions: {trainer.distribution}{trainer.versions}"
            ) from error
        return getattr(module, name)

    def directory() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *homes})

    return getattribute, directory
