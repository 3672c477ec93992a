"""What a terminal task is: files, an instruction, and tests on what a shell has made of the files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from gem_core.envs.drawn import Drawn
from gem_core.sandbox.shell import File, Files, Shell, ShellResult

_SECONDS = 60.0


class End:
    """What an episode has left in ``/app``.

    Args:
        files: By path.
        open: Makes a new shell.
    """

    def __init__(self, files: Files, open: Callable[[], Shell]) -> None:
        self.files = files
        self._open = open

    def text(self, path: str) -> str | None:
        """A file as text; None when there is no such file."""
        file = self.files.get(path)
        return None if file is None or file.folder or file.target is not None else file.text

    def lines(self, path: str) -> list[str] | None:
        """Its lines, without blanks at their ends and without empty lines at the end of the file."""
        text = self.text(path)
        return None if text is None else [line.rstrip() for line in text.rstrip().split("\n")]

    def below(self, folder: str) -> dict[str, File]:
        """Files and links below a folder, by their path in it; no folders."""
        start = f"{folder}/"
        return {
            path[len(start) :]: file
            for path, file in self.files.items()
            if path.startswith(start) and not file.folder
        }

    def run(self, command: str, more: Mapping[str, str] | None = None) -> ShellResult:
        """Run a command on a copy of the files, with `more` files beside them; it has a minute."""
        with closing(self._open()) as shell:
            shell.write({**self.files, **texts(more or {})})
            return shell.run(command, seconds=_SECONDS)


Check: TypeAlias = Callable[[End], bool]


class Condition(NamedTuple):
    """One thing that has to be so at the end."""

    name: str
    """What it looks at, for the player."""
    check: Check
    """Whether it is so; one that raises has found something else than it has to find."""


@dataclass(frozen=True)
class Task:
    """One task with its numbers and names drawn.

    Attributes:
        instruction: What is to be done.
        files: In ``/app`` at the start.
        tests: All of which have to pass.
        solution: Commands that do it.
        wrong: Commands that end close by; the tests refuse each.
    """

    instruction: str
    files: Files
    tests: tuple[Condition, ...]
    solution: str
    wrong: tuple[str, ...]


TASKS: Drawn[Task] = Drawn(
    "gem_core.envs.terminal.tasks", ("files", "logs", "records", "programs", "repair", "search")
)
task = TASKS.add


# -- files and tests that many tasks have ---------------------------------------------------------


def texts(files: Mapping[str, str]) -> dict[str, File]:
    """Files from texts; one that starts with ``#!`` can be run."""
    return {
        path: File(text.encode(), 0o755 if text.startswith("#!") else 0o644) for path, text in files.items()
    }


def has_lines(path: str, *expected: str) -> Condition:
    """A file with exactly these lines."""
    return Condition(f"the content of {path}", lambda end: end.lines(path) == list(expected))


def has_files(folder: str, expected: Mapping[str, str]) -> Condition:
    """A folder with exactly these files."""
    return Condition(
        f"the files in {folder}",
        lambda end: (
            {path: file.data for path, file in end.below(folder).items() if file.target is None}
            == {path: text.encode() for path, text in expected.items()}
            and len(end.below(folder)) == len(expected)
        ),
    )


def unchanged(files: Files, *paths: str) -> Condition:
    """Files that stay as they were, all of them unless some are named."""
    kept = paths or tuple(files)
    return Condition(
        "what was to stay as it was",
        lambda end: all(path in end.files and end.files[path].data == files[path].data for path in kept),
    )


def prints(name: str, command: str, expected: str, more: Mapping[str, str] | None = None) -> Condition:
    """A command that ends well and prints this, blanks at the ends of lines aside."""

    def check(end: End) -> bool:
        result = end.run(command, more)
        return result.status == 0 and _bare(result.output) == _bare(expected)

    return Condition(name, check)


def _bare(text: str) -> str:
    return re.sub(r"[ \t]+$", "", text.rstrip(), flags=re.MULTILINE)
