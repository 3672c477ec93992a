"""Levels ``none`` and ``process``, behind the interface of all levels."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import SandboxError
from gem_core.sandbox.limits import ProgramLimits
from gem_core.sandbox.process import run_python
from gem_core.sandbox.result import Ending, RunResult
from gem_core.sandbox.workspace import own_folder, read_files, write_files


class Process:
    """Runs programs at level ``process``; the module of that name states what the level does not block.

    Args:
        packages: Whether programs can import every installed package.
    """

    level = "process"

    def __init__(self, *, packages: bool = False) -> None:
        self._packages = packages

    def run(
        self,
        code: str,
        *,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: ProgramLimits | None = None,
    ) -> RunResult:
        """See `levels.Sandbox.run`."""
        return run_python(
            code, stdin=stdin, limits=limits, packages=self._packages, files=files, fetch=fetch
        )  # fmt: skip

    def session(self) -> Any:
        """Raise an error, because this level has no sessions.

        Raises:
            SandboxError: Always.
        """
        raise SandboxError("level 'process' has no sessions; use level 'namespace' or stateful=False")

    def close(self) -> None:
        """Do nothing, because nothing persists between programs."""


class InProcess:
    """Runs programs at level ``none``: in this process. Only for programs that you wrote yourself.

    No limit applies, not even the time limit. Programs run one at a time, because standard output is global
    to the process.

    Args:
        variables: Variables that programs share. None gives each program its own.
    """

    level = "none"
    alive = True
    """Sessions of this level cannot end by themselves."""
    _lock = threading.Lock()

    def __init__(self, variables: dict[str, Any] | None = None) -> None:
        self._variables = variables

    def run(
        self,
        code: str,
        *,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: ProgramLimits | None = None,
    ) -> RunResult:
        """See `levels.Sandbox.run`; of the `limits`, only `output_bytes` applies."""
        out, err = io.StringIO(), io.StringIO()
        size = (limits or ProgramLimits()).output_bytes
        variables = {"__name__": "__main__"} if self._variables is None else self._variables
        with self._lock, own_folder() as folder:
            write_files(folder, files or {})
            start = time.perf_counter()
            with _as_program(folder, stdin), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                exit_code = _execute(code, variables)
            seconds = time.perf_counter() - start
            fetched = read_files(folder, fetch, size)
        stdout, stderr = out.getvalue(), err.getvalue()
        cut = len(stdout) > size or len(stderr) > size
        ending: Ending = "failed" if exit_code else "ok"
        return RunResult(stdout[:size], stderr[:size], ending, exit_code, seconds, cut, "none", fetched)

    def session(self) -> InProcess:
        """Return a sandbox whose variables persist from one program to the next."""
        return InProcess({"__name__": "__main__"})

    def close(self) -> None:
        """Do nothing, because no process was started."""


def _execute(code: str, variables: dict[str, Any]) -> int:
    try:
        exec(compile(code, "main.py", "exec"), variables)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _as_program(folder: Path, stdin: str) -> Iterator[None]:
    cwd, standard_in = os.getcwd(), sys.stdin
    os.chdir(folder)
    sys.stdin = io.StringIO(stdin)
    try:
        yield
    finally:
        os.chdir(cwd)
        sys.stdin = standard_in
