"""Where the tasks of a terminal come from: `TaskSet`, and `OwnTasks`, those of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from gem_core.envs.terminal.task import TASKS, Check, End, Task
from gem_core.sandbox.shell import Shell


class Grade(NamedTuple):
    """What the tests of a task say."""

    failed: list[str]
    """Names of those that do not pass."""
    tests: int
    """How many there are."""


class TaskSet(Protocol):
    """Numbered tasks."""

    def __len__(self) -> int: ...

    def task(self, index: int, seed: int) -> Task:
        """Task `index`, its names and numbers drawn from `seed`."""
        ...

    def grade(self, task: Task, shell: Shell, open: Callable[[], Shell]) -> Grade:
        """How far what a shell has left is what `task` wants.

        Args:
            task: As `task` made it.
            shell: Of the episode; nothing of it is needed afterwards.
            open: Makes a new shell.
        """
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

    def grade(self, task: Task, shell: Shell, open: Callable[[], Shell]) -> Grade:
        """See `TaskSet`; the files are copied, so that no process of the player is near the tests."""
        end = End(shell.read(), open)
        failed = [condition.name for condition in task.tests if not _holds(condition.check, end)]
        return Grade(failed, len(task.tests))


def _holds(check: Check, end: End) -> bool:
    try:
        return check(end)
    except Exception:  # it has found something else than it has to find: text that is no JSON, no such key
        return False
