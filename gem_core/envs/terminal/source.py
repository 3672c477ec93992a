"""Where the tasks of a terminal come from: `TaskSource`, and `OwnTasks`, those of this package."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from random import Random
from typing import Protocol

from gem_core.envs.terminal.task import TASKS, End, Task
from gem_core.errors import ConfigError

GROUPS = ("files", "logs", "records", "programs", "repair", "search")
"""Modules of `gem_core.envs.terminal.tasks`."""


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

    def __init__(self, names: Sequence[str] | None = None) -> None:
        for group in GROUPS:
            importlib.import_module(f"gem_core.envs.terminal.tasks.{group}")
        every = {name: maker for group in GROUPS for name, maker in TASKS[group].items()}
        if names is None:
            names = GROUPS
        self.names: list[str] = []
        for name in names:
            if name not in TASKS and name not in every:
                raise ConfigError(
                    f"no group or task {name!r}; groups: {', '.join(GROUPS)}; tasks: {', '.join(every)}"
                )
            self.names += [one for one in TASKS.get(name, (name,)) if one not in self.names]
        if not self.names:
            raise ConfigError("tasks=: expected at least one name of a group or of a task")
        self._makers = [every[name] for name in self.names]

    def __len__(self) -> int:
        return len(self._makers)

    def task(self, index: int, seed: int) -> Task:
        return self._makers[index](Random(f"{self.names[index]} {seed}"))

    def failed(self, task: Task, end: End) -> list[str]:
        return [condition.name for condition in task.tests if not _holds(condition.check, end)]


def _holds(check: object, end: End) -> bool:
    try:
        return bool(check(end))  # type: ignore[operator]
    except Exception:  # it has found something else than it has to find: text that is no JSON, no such key
        return False
