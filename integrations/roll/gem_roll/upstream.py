"""The parts of ROLL that are overridden, looked at before they are: another signature is an error."""

from __future__ import annotations

import inspect
from typing import Any

from gem_core.errors import UnsupportedTrainer

SUPPORTED_TREE = "ROLL 0.3, the source tree of 2026-08"

_MANAGER = (
    "self", "worker_config", "pipeline_config", "env_config", "tokenizer", "generate_scheduler",
    "output_queue", "thread_lock", "mode",
)  # fmt: skip


def check_managers(manager: type) -> None:
    """Raise `UnsupportedTrainer` unless ROLL's `TrajEnvManager` is the one that is extended here."""
    expect(manager, "__init__", *_MANAGER)
    expect(manager, "run_rollout_loop", "self", "data")
    expect(manager, "formulate_rollouts", "self", "rollout_cache")
    expect(manager, "update_step", "self", "global_step")


def check_pipeline(pipeline: type) -> None:
    """Raise `UnsupportedTrainer` unless ROLL's `AgenticPipeline` is the one that is extended here."""
    expect(pipeline, "__init__", "self", "pipeline_config")
    expect(pipeline, "adjust_batch", "self", "data", "mode")


def expect(owner: type, name: str, *parameters: str) -> None:
    """Look at the first parameters of a method.

    Raises:
        UnsupportedTrainer: It is not there, or begins with others.
    """
    found: Any = getattr(owner, name, None)
    has = tuple(inspect.signature(found).parameters) if found is not None else ()
    if has[: len(parameters)] != parameters:
        what = "is missing" if found is None else f"takes {', '.join(has)}"
        raise UnsupportedTrainer(
            f"gem_roll: {owner.__module__}.{owner.__name__}.{name} {what}; supported is {SUPPORTED_TREE}"
        )
