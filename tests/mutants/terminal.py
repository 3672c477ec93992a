"""Mutants of the terminal tasks: the reference's commands with one token changed, or without a part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

from gem_core.envs.terminal.source import OwnTasks
from gem_core.envs.terminal.task import Task
from gem_core.sandbox.shell import open_shell
from tests.mutants.tokens import mutants

_PARTS = {
    "without option": r" -{1,2}[a-zA-Z]\w*(?= )",
    "without stage": r" \| (?!\|)[^|;}\n]+",
    "without pattern": r"\^|\$(?=/|'|\")|\\b",
    "without method": r"\.\w+\([^()]*\)",
}


def changed_commands(solution: str) -> Iterator[tuple[str, str]]:
    """Return changed solutions by the place and kind of the change."""
    yield from mutants(solution)
    for name, pattern in _PARTS.items():
        for place, found in enumerate(re.finditer(pattern, solution)):
            yield f"{name} {place}", solution[: found.start()] + solution[found.end() :]
    lines = solution.split("\n")
    for place in range(1, len(lines) - 2):
        yield f"without line {place}", "\n".join([*lines[:place], *lines[place + 1 :]])


def judged(source: OwnTasks, task: Task, seconds: float = 5.0) -> dict[str, bool]:
    """Return whether a task pays each mutant of its solution."""
    verdicts = {}
    for kind, command in changed_commands(task.solution):
        with closing(open_shell()) as shell:
            shell.write(task.files)
            result = shell.run(command, seconds=seconds)
            verdicts[kind] = result.ending == "ok" and not source.grade(task, shell, open_shell).failed
    return verdicts
