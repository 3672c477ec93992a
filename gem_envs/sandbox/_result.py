"""The result of a sandboxed program, the same at every level."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

Ending: TypeAlias = Literal["ok", "failed", "timeout", "killed"]
"""In order: exit code 0; another exit code; stopped by a time limit; ended by another signal."""


class RunResult(NamedTuple):
    """Result of running a program."""

    stdout: str
    stderr: str
    ending: Ending
    exit_code: int
    """Exit code; a negative number is the signal that ended the program."""
    seconds: float
    """Wall-clock time in seconds, including the start of the interpreter."""
    cut: bool
    """Whether the program wrote more than `ProgramLimits.output_bytes`."""
    level: str
    """Isolation level that the program ran at."""
    files: Mapping[str, bytes] = MappingProxyType({})
    """Contents of the requested files that the program wrote."""
    wall: bool = False
    """Whether the limit of wall-clock time stopped the program, and not that of CPU time."""


def ending_of(exit_code: int, *, timed_out: bool) -> Ending:
    """Classify how a program ended.

    Args:
        exit_code: Exit code; a negative number is the signal that ended the program.
        timed_out: Whether a time limit stopped it. A program that ended by ``SIGXCPU`` exceeded its CPU
            time and counts as timed out either way.
    """
    if timed_out or exit_code == -signal.SIGXCPU:
        return "timeout"
    if exit_code < 0:
        return "killed"
    return "failed" if exit_code else "ok"


def head(data: bytes, size: int) -> tuple[str, bool]:
    """Return the first `size` bytes as text, and whether there were more."""
    return data[:size].decode("utf-8", "replace"), len(data) > size
