"""Module that verl loads through the entry-point group ``verl.plugins`` in every process that imports verl.

It registers the estimators, the agent loop, and the trainer modes right after verl has imported the modules
that hold their registries, so a process that needs none of them does no extra work. verl logs a failing
plugin at DEBUG level only, so this module logs its own warnings.
"""

from __future__ import annotations

import functools
import importlib
import logging
from types import ModuleType

from gem_core.trainers import after_import
from gem_verl import _SUPPORTED

_logger = logging.getLogger(__name__)

_AFTER = {
    "verl.experimental.agent_loop.agent_loop": "gem_verl._loop",
    "verl.trainer.ppo.core_algos": "gem_verl.estimators",
    "verl.trainer.ppo.v1": "gem_verl._trainer",
}
"""Modules of verl, each with the module that registers something in it."""


def activate() -> None:
    """Register everything, now or as soon as verl has imported the registries."""
    if problem := _SUPPORTED.problem():
        _logger.warning("gem_verl is not active: %s", problem)
    else:
        for name, module in _AFTER.items():
            after_import(name, functools.partial(_load, module))


def _load(module: str, _: ModuleType) -> None:
    try:
        importlib.import_module(module)
    except Exception:  # verl must be able to continue, and the user must see the cause
        _logger.exception("%s cannot be imported", module)


activate()
