"""Checks the parts of ROLL that this plugin overrides; a different interface is an error."""

from __future__ import annotations

from typing import Any

from gem_core.trainers.interface import expect
from gem_roll import SUPPORTED

_MANAGER = (
    "self", "worker_config", "pipeline_config", "env_config", "tokenizer", "generate_scheduler",
    "output_queue", "thread_lock", "mode",
)  # fmt: skip


def check_managers(manager: type) -> None:
    """Raise `UnsupportedTrainer` unless ROLL's `TrajEnvManager` has the interface that is extended here."""
    check(manager, "__init__", *_MANAGER)
    check(manager, "run_rollout_loop", "self", "data")
    check(manager, "formulate_rollouts", "self", "rollout_cache")
    check(manager, "update_step", "self", "global_step")


def check_pipeline(pipeline: type) -> None:
    """Raise `UnsupportedTrainer` unless ROLL's `AgenticPipeline` has the interface that is extended here."""
    check(pipeline, "__init__", "self", "pipeline_config")
    check(pipeline, "adjust_batch", "self", "data", "mode")
    check(pipeline, "do_checkpoint", "self", "global_step")


def check_queue(queue: Any) -> None:
    """Raise `UnsupportedTrainer` unless ROLL's queue of rollouts has the methods that are called here."""
    if hasattr(queue, "__ray_metadata__"):  # the class inside Ray's actor class
        queue = queue.__ray_metadata__.modified_class
    check(queue, "get_episode_id", "self", "group_id", "env_id")
    check(queue, "put", "self", "group_id", "episode_id", "start_step", "rollout", "env_id")


def check(owner: type, name: str, *parameters: str) -> Any:
    """Check the first parameters of a method of ROLL, and return the method."""
    return expect(SUPPORTED, owner, name, *parameters, exact=False)
