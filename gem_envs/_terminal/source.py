"""Sources of terminal tasks: `TaskSet`, and `OwnTasks`, the tasks of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from gem_core.errors import EnvError, SandboxError
from gem_envs._terminal.task import TASKS, End, EndCheck, TerminalTask
from gem_envs.sandbox._shell import Shell


class Grade(NamedTuple):
    """Result of the tests of a task."""

    failed: list[str]
    """Names of the failing tests."""
    tests: int
    """Total number of tests."""
    rewards: Mapping[str, float] | None = None
    """Rewards by name, from 0 to 1, which a test script wrote; None if only the tests decide."""

    @property
    def reward(self) -> float:
        """Reward of the result: ``reward``, else the mean of the named rewards; 1 if all tests pass."""
        if self.rewards is None:
            return float(not self.failed)
        mean = sum(self.rewards.values()) / max(1, len(self.rewards))
        return self.rewards.get("reward", mean)


class TaskSet(Protocol):
    """Interface of a numbered set of tasks."""

    def __len__(self) -> int: ...

    def task(self, index: int, seed: int) -> TerminalTask:
        """Return task `index`, with names and numbers drawn from `seed`."""
        ...

    def grade(self, task: TerminalTask, shell: Shell, open: Callable[[], Shell]) -> Grade:
        """Grade the files of a shell.

        Args:
            task: A task returned by `task`.
            shell: The shell of the episode; not needed afterwards.
            open: Opens a new shell.
        """
        ...


class OwnTasks:
    """The tasks of this package.

    Args:
        names: Names of groups or tasks; None means all.

    Raises:
        ConfigError: A name is unknown.
    """

    def __init__(self, names: Sequence[str] | str | None = None) -> None:
        self._choice = TASKS.choose(names)
        self.names = self._choice.names
        self.task = self._choice.task

    def __len__(self) -> int:
        return len(self._choice)

    def grade(self, task: TerminalTask, shell: Shell, open: Callable[[], Shell]) -> Grade:
        """See `TaskSet`. The files are copied, so that no process of the player can reach the tests."""
        try:
            end = End(shell.read(), open)
        except SandboxError:  # the player has ended it, or has left too much
            return Grade([condition.name for condition in task.tests], len(task.tests))
        failed = [condition.name for condition in task.tests if not _holds(condition.check, end)]
        return Grade(failed, len(task.tests))


def _holds(check: EndCheck, end: End) -> bool:
    try:
        return check(end)
    except EnvError:
        raise
    except Exception:  # unexpected content: invalid JSON, a missing key
        return False
