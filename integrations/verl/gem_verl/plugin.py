"""Loaded by verl through the entry-point group ``verl.plugins``, in every process that imports verl.

Estimators and the trainer mode are registered right after verl has imported the module that holds
their registry: a process that needs neither pays nothing. verl logs a failing plugin at DEBUG level
only, so this module warns by itself.
"""

from __future__ import annotations

import functools
import importlib
import logging
from types import ModuleType

from gem_core.trainers.imports import after_import
from gem_verl import SUPPORTED

logger = logging.getLogger(__name__)

AFTER = {
    "verl.trainer.ppo.core_algos": "gem_verl.estimators",
    "verl.trainer.ppo.v1": "gem_verl.trainer",
}
"""Module of verl, and what registers there."""


def _register(module: str, _: ModuleType) -> None:
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
    for verl_module, module in AFTER.items():
        after_import(verl_module, functools.partial(_register, module))


activate()
