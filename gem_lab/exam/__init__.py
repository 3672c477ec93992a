"""The estimator exam: compare advantage estimators with the exact policy gradient of small multi-turn tasks.

    from gem_lab.exam import run

    print(run("rebn"))

The gradient of the expected return of a `TableTask` is computed by dynamic programming, so the bias and the
variance of an estimator can be measured. Requires numpy only.
"""

from gem_lab.exam.certificates import Certificate
from gem_lab.exam.run import Exam, Result, run
from gem_lab.exam.task import ActionOutcome, TableTask
from gem_lab.exam.tasks import get_task, list_tasks, register_task

__all__ = [
    "Certificate",
    "Exam",
    "ActionOutcome",
    "Result",
    "TableTask",
    "get_task",
    "list_tasks",
    "register_task",
    "run",
]
