"""Module that verl loads through the entry-point group ``verl.plugins`` in every process that imports verl.

It registers the estimators, the agent loop, and the trainer modes right after verl has imported the modules
that hold their registries, so a process that needs none of them does no extra work. verl logs a failing
plugin at DEBUG level only, so this module logs its own warnings.
"""

from __future__ import annotations

import logging

from gem_core.trainers._imports import import_after
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
        import_after(_AFTER, _logger)


activate()
