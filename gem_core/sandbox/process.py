"""Level ``process``: a Python program in an interpreter of its own, under limits of the kernel.

What holds here:

- wall time, after which the whole process group is killed, and CPU time, memory, size of a file, number
  of open files;
- an environment without any variable of the caller, no descriptor but the three standard ones, a working
  folder that is removed afterwards, isolated mode (``-I``) and, unless `packages`, no site-packages;
- stdin is what was given, else empty; of stdout and stderr at most `Limits.output_bytes` come back, and a
  flood of output costs no more disk than `Limits.file_bytes`.

What this level does not stop: reading and writing whatever files the user may, the network, signals to
other processes of the user, a child that leaves the process group, filling the disk with many files. The
number of processes (`Limits.processes`) counts all of the user's and does not bind root.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Literal, NamedTuple, TypeAlias

from gem_core.errors import ConfigError
from gem_core.sandbox.files import own_folder, read_files, write_files

Ending: TypeAlias = Literal["ok", "failed", "timeout", "killed"]
"""Exit code 0; another exit code; stopped at a time limit; ended by another signal."""

LEVEL = "process"
_CHILD = str(Path(__file__).with_name("_child.py"))


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Attributes:
        wall_seconds: Time on the clock.
        cpu_seconds: CPU time of each process, rounded up to whole seconds.
        memory_bytes: Address space of each process.
        file_bytes: Size of each file that is written, stdout and stderr included.
        processes: Processes of this user on the whole machine, this program's threads included.
        open_files: Descriptors of each process.
        output_bytes: How much of stdout, and of stderr, comes back.
    """

    wall_seconds: float = 5.0
    cpu_seconds: float = 5.0
    memory_bytes: int = 512 * 2**20
    file_bytes: int = 16 * 2**20
    processes: int = 1024
    open_files: int = 64
    output_bytes: int = 2**20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            whole = not name.endswith("_seconds")
            number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                kind = "whole" if whole else "finite"
                raise ConfigError(f"{name} must be a {kind} number above 0, not {value!r}")


ISOLATED = Limits(processes=32)
"""For levels where a program sees no process but its own: the limit counts its own, and can be low."""


class RunResult(NamedTuple):
    """What a program did."""

    stdout: str
    stderr: str
    ending: Ending
    exit_code: int
    """Negative: the signal that ended it."""
    seconds: float
    """Time on the clock, the start of the interpreter included."""
    cut: bool
    """Whether more was written than `Limits.output_bytes`."""
    level: str
    """Isolation that the program ran under."""
    files: Mapping[str, bytes] = MappingProxyType({})
    """Those that were asked for and that it wrote."""


def run_python(
    code: str,
    *,
    stdin: str = "",
    limits: Limits | None = None,
    packages: bool = False,
    files: Mapping[str, bytes] | None = None,
    fetch: Sequence[str] = (),
) -> RunResult:
    """Run a Python program to its end.

    Args:
        code: Source of the program.
        stdin: What it can read.
        limits: None for the defaults.
        packages: Whether it can import what is installed beside the standard library (a slower start).
        files: Put into its folder before it starts, by their relative path.
        fetch: Files of its folder that come back in `RunResult.files`, where it has written them.

    Returns:
        The result; a program that fails, loops or floods is a result too, never an exception.

    Raises:
        OSError: The machine cannot start another process or write a temporary file.
    """
    limits = limits or Limits()
    with own_folder() as outside:
        inside = outside / "work"
        inside.mkdir()
        write_files(inside, files or {})
        (inside / "main.py").write_bytes(code.encode("utf-8", "surrogatepass"))
        (outside / "in").write_bytes(stdin.encode("utf-8", "surrogatepass"))
        with (
            open(outside / "in", "rb") as given,
            open(outside / "out", "w+b") as out,
            open(outside / "err", "w+b") as err,
        ):
            start = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-I", *([] if packages else ["-S"]), _CHILD, _wire(limits), "main.py"],
                stdin=given, stdout=out, stderr=err, cwd=inside, start_new_session=True,
                env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": str(inside), "TMPDIR": str(inside)},
            )  # fmt: skip
            timed_out = _wait(process, limits.wall_seconds)
            seconds = time.perf_counter() - start
            stdout, more_out = _head(out, limits.output_bytes)
            stderr, more_err = _head(err, limits.output_bytes)
        fetched = read_files(inside, fetch, limits.file_bytes)
    code_ = process.returncode
    if timed_out or code_ == -signal.SIGXCPU or (code_ == -signal.SIGKILL and seconds >= limits.cpu_seconds):
        ending: Ending = "timeout"
    elif code_ < 0:
        ending = "killed"
    else:
        ending = "failed" if code_ else "ok"
    return RunResult(stdout, stderr, ending, code_, seconds, more_out or more_err, LEVEL, fetched)


def _wire(limits: Limits) -> str:
    cpu = max(1, -int(-limits.cpu_seconds // 1))
    return f"{cpu},{limits.memory_bytes},{limits.file_bytes},{limits.processes},{limits.open_files}"


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end, then kill what is left of the process group; whether the time was up."""
    try:
        timed_out = not _ended_within(process, seconds)
    finally:  # also on KeyboardInterrupt: nothing of the program stays behind
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # before it is reaped: the number is still its own
        process.wait()
    return timed_out


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ends in time. It is not reaped: until then nobody else can get its number."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # an old kernel
            descriptor = os.pidfd_open(process.pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                return bool(poll.poll(seconds * 1000))
            finally:
                os.close(descriptor)
    end = time.monotonic() + seconds
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def _head(file: BinaryIO, size: int) -> tuple[str, bool]:
    """The first `size` bytes as text, and whether there is more; a program may have removed the name."""
    data = os.pread(file.fileno(), size + 1, 0)
    return data[:size].decode("utf-8", "replace"), len(data) > size
