"""Task rows: which environment to play, with which seed and item."""

from __future__ import annotations

from gem_core._tasks import (
    EVAL_SEEDS,
    EnvChoice,
    TaskRow,
    make_tasks,
    read_task,
    reset_arguments,
    write_tasks,
)

__all__ = [
    "EVAL_SEEDS",
    "EnvChoice",
    "TaskRow",
    "make_tasks",
    "read_task",
    "reset_arguments",
    "write_tasks",
]
