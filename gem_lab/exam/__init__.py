"""The estimator exam: compare advantage estimators with the exact policy gradient of small multi-turn tasks.

    from gem_lab.exam import run

    print(run("rebn"))

The gradient of the expected return of a `TableTask` is computed by dynamic programming, so the bias and the
variance of an estimator can be measured. Requires numpy only.
"""

from __future__ import annotations

from gem_lab.exam._run import Exam, run
from gem_lab.exam._task import ActionOutcome, TableTask
from gem_lab.exam._tasks import register_task

__all__ = [
    "Exam",
    "ActionOutcome",
    "TableTask",
    "register_task",
    "run",
]
