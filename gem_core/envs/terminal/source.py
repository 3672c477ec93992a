"""Where the tasks of a terminal come from: `TaskSource`, and `OwnTasks`, those of this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gem_core.envs.terminal.task import TASKS, Check, End, Task


class TaskSource(Protocol):
    """Numbered tasks."""

    def __len__(self) -> int: ...

    def task(self, index: int, seed: int) -> Task:
        """Task `index`, its names and numbers drawn from `seed`."""
        ...

    def failed(self, task: Task, end: End) -> list[str]:
        """Names of the tests of `task` that do not pass."""
        ...


class OwnTasks:
    """The tasks of this package.

    Args:
        names: Of groups or of tasks; None for all.

    Raises:
        ConfigError: No such group or task.
    """

    def __init__(self, names: Sequence[str] | str | None = None) -> None:
        self._choice = TASKS.choose(names)
        self.names = self._choice.names
        self.task = self._choice.task

    def __len__(self) -> int:
        return len(self._choice)

    def failed(self, task: Task, end: End) -> list[str]:
        """See `TaskSource`."""
        return [condition.name for condition in task.tests if not _holds(condition.check, end)]


def _holds(check: Check, end: End) -> bool:
    try:
        return check(end)
    except Exception:  # it has found something else than it has to find: text that is no JSON, no such key
        return False
