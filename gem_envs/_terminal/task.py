"""A terminal task: files, an instruction, and tests of the files at the end of the episode."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from gem_core.errors import EnvError
from gem_envs._drawn import Drawn
from gem_envs.sandbox._shell import File, Files, Shell, ShellResult

_CPU_SECONDS = 20
_SECONDS = 400.0
_BLANKS = " \t\r"
_PLAIN = (False, False, None)
"""What `_kind` says of a file before its contents."""


class End:
    """The contents of ``/app`` at the end of an episode.

    Args:
        files: Files by path.
        open: Opens a new shell.
    """

    def __init__(self, files: Files, open: Callable[[], Shell]) -> None:
        self.files = files
        self._open = open

    def text(self, path: str) -> str | None:
        """Return the text of a file; None if it does not exist."""
        file = self.files.get(path)
        return None if file is None or _kind(file)[:3] != _PLAIN else file.text

    def lines(self, path: str) -> list[str] | None:
        """Return the lines of a file, without trailing blanks and without empty lines at its end."""
        text = self.text(path)
        if text is None:
            return None
        return [line.rstrip(_BLANKS) for line in text.rstrip(f"{_BLANKS}\n").split("\n")]

    def below(self, folder: str) -> dict[str, File]:
        """Return the files and links below a folder, by relative path, without folders."""
        start = f"{folder}/"
        return {
            path[len(start) :]: file
            for path, file in self.files.items()
            if path.startswith(start) and not file.folder
        }

    def run(self, command: str, more: Mapping[str, str] | None = None) -> ShellResult:
        """Run a command on a copy of the files, plus the files in `more`; its errors are not in the output.

        Each process has 20 seconds of CPU time, so the load of the machine decides nothing.

        Raises:
            EnvError: The command waited for minutes, so that there is no verdict.
        """
        with closing(self._open()) as shell:
            shell.write({**self.files, **texts(more or {})})
            result = shell.run(f"ulimit -t {_CPU_SECONDS}\n{{\n{command}\n}} 2> /dev/null", seconds=_SECONDS)
        if result.ending == "timeout":
            raise EnvError(f"a test is undecided: its command did not end within {_SECONDS:g} seconds")
        return result


EndCheck: TypeAlias = Callable[[End], bool]


class Condition(NamedTuple):
    """A test: a condition that has to hold at the end of an episode."""

    name: str
    """Name of the test, shown to the player."""
    check: EndCheck
    """Function that returns whether the condition holds. An exception counts as False."""


@dataclass(frozen=True)
class TerminalTask:
    """A task whose numbers and names have been drawn.

    Attributes:
        instruction: Instruction for the player.
        files: Initial files in ``/app``.
        tests: Conditions that all have to hold at the end.
        solution: Shell commands of the reference solution.
        wrong: Shell commands whose results are close but wrong; the tests reject each of them.
    """

    instruction: str
    files: Files
    tests: tuple[Condition, ...]
    solution: str
    wrong: tuple[str, ...]


TASKS: Drawn[TerminalTask] = Drawn(
    "gem_envs._terminal.tasks", ("files", "logs", "records", "programs", "repair", "search")
)
task = TASKS.add


# -- files and tests that many tasks share --------------------------------------------------------


def texts(files: Mapping[str, str]) -> dict[str, File]:
    """Return files with the given texts; a text that starts with ``#!`` becomes executable."""
    return {
        path: File(text.encode(), 0o755 if text.startswith("#!") else 0o644) for path, text in files.items()
    }


def has_lines(path: str, *expected: str) -> Condition:
    """Return the condition that a file has exactly these lines."""
    return Condition(f"the content of {path}", lambda end: end.lines(path) == list(expected))


def has_files(folder: str, expected: Mapping[str, str]) -> Condition:
    """Return the condition that a folder has exactly these files."""
    wanted = {path: (*_PLAIN, text.encode()) for path, text in expected.items()}
    return Condition(
        f"the files in {folder}",
        lambda end: {path: _kind(file) for path, file in end.below(folder).items()} == wanted,
    )


def has_texts(folder: str, expected: Mapping[str, str]) -> Condition:
    """Return the condition that a folder has exactly these files, with these lines as in `has_lines`."""
    return Condition(
        f"the files in {folder}",
        lambda end: (
            end.below(folder).keys() == expected.keys()
            and all(
                end.lines(f"{folder}/{path}") == text.rstrip().split("\n") for path, text in expected.items()
            )
        ),
    )


def is_empty(folder: str) -> Condition:
    """Return the condition that a folder exists and holds nothing."""

    def check(end: End) -> bool:
        found = end.files.get(folder)
        return found is not None and found.folder and not any(p.startswith(f"{folder}/") for p in end.files)

    return Condition(f"{folder} is empty", check)


def unchanged(files: Files, *paths: str) -> Condition:
    """Return the condition that files are unchanged: the named ones, or all of them."""
    kept = {path: _kind(files[path]) for path in paths or tuple(files)}
    return Condition(
        "what was to stay as it was",
        lambda end: all(path in end.files and _kind(end.files[path]) == kind for path, kind in kept.items()),
    )


def _kind(file: File) -> tuple[bool, bool, str | None, bytes]:
    return file.other, file.folder, file.target, file.data


def prints(name: str, command: str, expected: str, more: Mapping[str, str] | None = None) -> Condition:
    """Return the condition that a command succeeds and prints this text, ignoring trailing whitespace.

    What it writes to standard error does not count.
    """

    def check(end: End) -> bool:
        result = end.run(command, more)
        return result.status == 0 and _bare(result.output) == _bare(expected)

    return Condition(name, check)


def _bare(text: str) -> str:
    return re.sub(r"[ \t\r]+$", "", text.rstrip(f"{_BLANKS}\n"), flags=re.MULTILINE)
