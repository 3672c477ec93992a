"""Level ``process``: a Python program in its own interpreter, under limits of the kernel.

The level enforces:

- limits on wall time, after which the whole process group is killed, and on CPU time, memory, file size, and
  open files;
- an environment without the caller's variables, only the three standard descriptors, a working folder that is
  removed afterwards, isolated mode (``-I``), and no site-packages unless `packages` is set;
- stdin that holds only the given text; at most `ProgramLimits.output_bytes` of stdout and of stderr are
  returned, and a flood of output uses no more disk than `ProgramLimits.file_bytes`;
- the end of the program and of its process group when the caller ends in any way.

The level does not block: reading and writing any file that the user can, the network, signals to other
processes of the user, a child that leaves the process group, filling the disk with many files. The process
limit (`ProgramLimits.processes`) counts all processes of the user and does not apply to root.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gem_core._util import orphans
from gem_core._util.places import stopping
from gem_envs.sandbox._limits import ONE_THREAD, ProgramLimits
from gem_envs.sandbox._program import Program, Sandbox, cores, program_places, starting
from gem_envs.sandbox._result import RunResult, ending_of, head
from gem_envs.sandbox._workspace import own_folder, read_files, write_files

_LAUNCHER = str(Path(__file__).with_name("_guest") / "launch.py")
_places = program_places(cores())


class _Hold:
    """State of `programs_held`; an object, because the checker watches the attributes of modules."""

    def __init__(self) -> None:
        self.applies: Callable[[], bool] = lambda: False
        self.programs: list[Program] = []


_hold = _Hold()


class Process(Sandbox):
    """Runs programs at level `process`, at most four per core at a time; others wait.

    Args:
        packages: Whether programs can import every installed package (slower to start).
        trusted: Whether `programs_held` does not hold back the programs, because they are this package's own.
    """

    level = "process"
    default_limits = ProgramLimits()

    def __init__(self, *, packages: bool = False, trusted: bool = False) -> None:
        self._packages = packages
        self._trusted = trusted

    def run_program(self, program: Program) -> RunResult:
        if not self._trusted and _hold.applies():
            _hold.programs.append(program)
            return RunResult("", "the program was not run\n", "failed", 1, 0.0, False, self.level)
        limits = program.limits
        size = limits.output_bytes
        wire = ",".join(map(str, limits.kernel_limits()))
        code, stdin = program.encoded()
        with _places.held(), own_folder() as outside:
            inside = outside / "work"
            inside.mkdir()
            write_files(inside, program.files)
            (inside / "main.py").write_bytes(code)
            (outside / "in").write_bytes(stdin)
            with (
                open(outside / "in", "rb") as standard_in,
                open(outside / "out", "w+b") as out,
                open(outside / "err", "w+b") as err,
            ):
                with starting(sys.executable):
                    pipe = orphans.pipe()
                    start = time.perf_counter()
                    process = subprocess.Popen(
                        [
                            sys.executable, "-I", *([] if self._packages else ["-S"]), _LAUNCHER, wire,
                            "main.py", str(pipe),
                        ],
                        stdin=standard_in, stdout=out, stderr=err, cwd=inside, start_new_session=True,
                        pass_fds=(pipe,),
                        env={
                            "PYTHONHASHSEED": "0", "LANG": "C.UTF-8", **ONE_THREAD,
                            "HOME": str(inside), "TMPDIR": str(inside),
                        },
                    )  # fmt: skip
                timed_out = _wait(process, limits.wall_seconds)
                seconds = time.perf_counter() - start
                # Read from the descriptors, since the program may have removed the names.
                text_out, more_out = head(os.pread(out.fileno(), size + 1, 0), size)
                text_err, more_err = head(os.pread(err.fileno(), size + 1, 0), size)
            fetched = read_files(inside, program.fetch, limits.file_bytes)
        exit_code = process.returncode
        out_of_cpu = exit_code == -signal.SIGKILL and seconds >= limits.cpu_seconds
        ending = ending_of(exit_code, timed_out=timed_out or out_of_cpu)
        cut = more_out or more_err
        return RunResult(text_out, text_err, ending, exit_code, seconds, cut, self.level, fetched, timed_out)


@contextlib.contextmanager
def programs_held(applies: Callable[[], bool]) -> Iterator[list[Program]]:
    """Hold back the programs of this process at this level while the block runs; each one fails unrun.

    Args:
        applies: Whether to hold back a program; called for each one.

    Yields:
        The programs held back so far.
    """
    before = _hold.applies, _hold.programs
    _hold.applies, _hold.programs = applies, []
    try:
        yield _hold.programs
    finally:
        _hold.applies, _hold.programs = before


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the program, then kill the rest of its process group; return whether the time ran out."""

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # before reaping, while the number cannot be reused

    try:
        orphans.end_with_us(process.pid)
        with stopping(stop):
            timed_out = not _ended_within(process, seconds)
    finally:  # also on KeyboardInterrupt, so that no process is left behind
        stop()
        orphans.release(process.pid)
        process.wait()
    return timed_out


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Return whether the process ends in time. It is not reaped, so that its number cannot be reused."""
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
