"""`Program`, and `Runner` and `Sandbox`, the base classes of everything that runs one."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gem_core._util.checks import expected
from gem_core._util.places import Places
from gem_core.errors import SandboxError
from gem_envs.sandbox._limits import ISOLATED, ProgramLimits
from gem_envs.sandbox._result import RunResult

_AT_ONCE = 4
"""Concurrent programs per core; more than one, because some wait more than they compute."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def program_places(workers: int) -> Places:
    """Return the places for programs on a number of cores."""
    return Places(_AT_ONCE * workers)


@contextlib.contextmanager
def starting(python: str) -> Iterator[None]:
    """Start an interpreter in this block.

    Raises:
        SandboxError: This user cannot start it.
    """
    try:
        yield
    except OSError as error:
        if error.filename != python:
            raise
        raise SandboxError(
            f"the interpreter {python} cannot be started ({error.strerror}); use one that this user can start"
        ) from error


@dataclass(frozen=True)
class Program:
    """A Python program with its input and limits; see `Runner.run`."""

    code: str
    stdin: str
    files: Mapping[str, bytes]
    fetch: Sequence[str]
    limits: ProgramLimits

    def __post_init__(self) -> None:
        for name in ("code", "stdin"):
            if not isinstance(getattr(self, name), str):
                raise expected(name, getattr(self, name), "a text")

    def encoded(self) -> tuple[bytes, bytes]:
        """Return the code and the standard input in UTF-8, lone surrogates included."""
        return self.code.encode("utf-8", "surrogatepass"), self.stdin.encode("utf-8", "surrogatepass")


class Runner(ABC):
    """Runs programs; safe to use from any thread."""

    default_limits: ClassVar[ProgramLimits] = ISOLATED

    def run(
        self,
        code: str,
        *,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: ProgramLimits | None = None,
    ) -> RunResult:
        """Run a Python program until it ends.

        Args:
            code: Source of the program.
            stdin: Text of its standard input.
            files: Contents of files to create in the program's folder, by relative path.
            fetch: Files of the program's folder to return in `RunResult.files`, if it wrote them.
            limits: Resource limits. None uses `default_limits`.

        Returns:
            The result. A program that fails, loops, or floods its output is a result too, and so is a program
            that was killed.

        Raises:
            SandboxError: The program could not be started.
            OSError: The machine cannot start another process or write a temporary file.
            GivenUp: Nobody waits for the result anymore; the program did not start, or was stopped.
        """
        return self.run_program(Program(code, stdin, files or {}, fetch, limits or self.default_limits))

    @abstractmethod
    def run_program(self, program: Program) -> RunResult:
        """Run `program` until it ends; see `run`."""

    def close(self) -> None:  # noqa: B027  # not every level starts something that outlives a program
        """End all running programs. May be called more than once."""


class Sandbox(Runner):
    """Runs programs at one isolation level, each without the state of earlier ones."""

    level: ClassVar[str]
    """Name of the isolation level."""
    about: str = ""
    """What else `gem-core sandbox check` says of the level on this machine."""

    def session(self) -> Any:
        """Return a `Runner` whose variables persist from one program to the next, with the attribute `alive`.

        Raises:
            SandboxError: The level has no sessions.
        """
        raise SandboxError(f"level {self.level!r} has no sessions; use level 'namespace' or stateful=False")
