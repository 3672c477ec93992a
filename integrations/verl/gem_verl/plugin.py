"""Loaded by verl through the entry-point group ``verl.plugins``, in every process that imports verl.

Estimators and the trainer mode are registered right after verl has imported the module that holds
their registry: a process that needs neither pays nothing. verl logs a failing plugin at DEBUG level
only, so this module warns by itself.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import logging
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from gem_verl import SUPPORTED

logger = logging.getLogger(__name__)

AFTER = {
    "verl.trainer.ppo.core_algos": "gem_verl.estimators",
    "verl.trainer.ppo.v1": "gem_verl.trainer",
}
"""Module of verl, and what registers there."""


class _Loader(importlib.abc.Loader):
    """verl's own loader of a module, and then our import."""

    def __init__(self, inner: importlib.abc.Loader) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        _register(AFTER[module.__name__])


class _Finder(importlib.abc.MetaPathFinder):
    """Notices when one of the modules of `AFTER` is imported for the first time."""

    def __init__(self) -> None:
        self._waiting = set(AFTER)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        self._waiting.discard(name)  # the search below comes by here again
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _register(module: str) -> None:
    try:
        importlib.import_module(module)
    except Exception:  # verl must go on without us, but nobody shall have to guess why
        logger.exception("gem_verl is not active: %s cannot be imported", module)


def activate() -> None:
    """Register what verl has the registries of, now or as soon as it has."""
    problem = SUPPORTED.problem()
    if problem is not None:
        logger.warning("gem_verl is not active: %s", problem)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for verl_module, module in AFTER.items():
        if verl_module in sys.modules:
            _register(module)


activate()
