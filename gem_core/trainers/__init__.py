"""Shared code of all trainer plugins.

A plugin adapts one trainer: its inference engine to a `gem_core.rollout.Policy`, its batch to
`gem_core.rollout.Row`, and its config to the options in this package. Everything that does not depend on the
trainer is here. Importing this package requires neither torch nor a trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_core.trainers._estimators import EstimatorChoice, read_estimator
    from gem_core.trainers._exports import lazy_exports
    from gem_core.trainers._facts import BatchFacts, pack_facts, unpack_facts
    from gem_core.trainers._failures import batch_metrics
    from gem_core.trainers._imports import after_import
    from gem_core.trainers._interface import expect, expect_arguments
    from gem_core.trainers._options import EstimatorOptions, PluginOptions, RowOptions
    from gem_core.trainers._plan import Plan
    from gem_core.trainers._plugin import SupportedTrainer, TrainerPlugin
    from gem_core.trainers._tasks import pack_task, read_tasks, unpack_task

__all__ = [
    "BatchFacts",
    "EstimatorChoice",
    "EstimatorOptions",
    "Plan",
    "PluginOptions",
    "RowOptions",
    "SupportedTrainer",
    "TrainerPlugin",
    "after_import",
    "batch_metrics",
    "expect",
    "expect_arguments",
    "lazy_exports",
    "pack_facts",
    "pack_task",
    "read_estimator",
    "read_tasks",
    "unpack_facts",
    "unpack_task",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_core.trainers._estimators": ["EstimatorChoice", "read_estimator"],
        "gem_core.trainers._exports": ["lazy_exports"],
        "gem_core.trainers._facts": ["BatchFacts", "pack_facts", "unpack_facts"],
        "gem_core.trainers._failures": ["batch_metrics"],
        "gem_core.trainers._imports": ["after_import"],
        "gem_core.trainers._interface": ["expect", "expect_arguments"],
        "gem_core.trainers._options": [
            "EstimatorOptions",
            "PluginOptions",
            "RowOptions",
        ],
        "gem_core.trainers._plan": ["Plan"],
        "gem_core.trainers._plugin": ["SupportedTrainer", "TrainerPlugin"],
        "gem_core.trainers._tasks": ["pack_task", "read_tasks", "unpack_task"],
    },
)
