"""Mutants of the terminal tasks with hidden input: the reference's commands, changed in one place.

In the other tasks, the resulting files are all that was asked for, so a changed command with the same result
is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import patch

from gem_envs._terminal import task as task_module
from gem_envs._terminal.source import OwnTasks
from gem_envs._terminal.task import TerminalTask
from gem_envs.sandbox import open_shell
from tests.mutants.tokens import mutants

_PARTS = {
    "without option": r" -{1,2}[a-zA-Z]\w*(?= )",
    "without stage": r" \| (?!\|)[^|;}\n]+",
    "without pattern": r"\^|\$(?=/|'|\")|\\b",
    "without method": r"\.\w+\([^()]*\)",
}
HIDDEN = (
    "statistics", "slugs", "runs", "sizes_by_ending", "change", "validate", "wrong_window", "blanks_in_names",
    "pipeline",
)  # fmt: skip
"""Tasks whose tests run a program on input that the player has not seen."""
EQUIVALENT = {
    "statistics": ("without line 1",),  # bash runs a script without its first line
    "slugs": ("74 + becomes -",),  # python3 needs no executable file
    "runs": ("175 + becomes -",),
    "sizes_by_ending": ("without line 1",),
    "change": ("113 + becomes -",),
    "pipeline": ("without pattern 0",),  # a carriage return is only at the end
    "validate": ("without line 1", "without pattern 1"),  # the first match is at the beginning anyway
}
"""Changes that never change the result, by task."""


def changed_commands(solution: str) -> Iterator[tuple[str, str]]:
    """Return changed solutions by the place and kind of the change."""
    yield from mutants(solution)
    for name, pattern in _PARTS.items():
        for place, found in enumerate(re.finditer(pattern, solution)):
            yield f"{name} {place}", solution[: found.start()] + solution[found.end() :]
    lines = solution.split("\n")
    for place in range(1, len(lines) - 2):
        yield f"without line {place}", "\n".join([*lines[:place], *lines[place + 1 :]])


@patch.object(task_module, "_CPU_SECONDS", 2, create=True)  # some mutants never end
def judged(name: str, source: OwnTasks, task: TerminalTask, seconds: float = 5.0) -> dict[str, bool]:
    """Return whether a task pays each wrong mutant of its solution."""
    verdicts = {}
    for kind, command in changed_commands(task.solution):
        if kind in EQUIVALENT.get(name, ()):
            continue
        with closing(open_shell()) as shell:
            shell.write(task.files)
            result = shell.run(command, seconds=seconds)
            verdicts[kind] = result.ending == "ok" and not source.grade(task, shell, open_shell).failed
    return verdicts
