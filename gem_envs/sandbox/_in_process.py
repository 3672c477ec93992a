"""Level ``none``: a Python program in this process."""

from __future__ import annotations

import contextlib
import io
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gem_core._util.places import Places
from gem_envs._working_directory import working_in
from gem_envs.sandbox._program import Program, Sandbox
from gem_envs.sandbox._result import Ending, RunResult
from gem_envs.sandbox._workspace import own_folder, read_files, write_files


class InProcess(Sandbox):
    """Runs programs at level ``none``: in this process. Only for programs that you wrote yourself.

    Of the limits, only `output_bytes` applies; there is no time limit. Programs run one at a time, because
    standard output is global to the process.

    Args:
        variables: Variables that programs share. None gives each program its own.
    """

    level = "none"
    alive = True
    """Sessions of this level cannot end by themselves."""
    _turn = Places(1)

    def __init__(self, variables: dict[str, Any] | None = None) -> None:
        self._variables = variables

    def run_program(self, program: Program) -> RunResult:
        out, err = io.StringIO(), io.StringIO()
        size = program.limits.output_bytes
        variables = {"__name__": "__main__"} if self._variables is None else self._variables
        with self._turn.held(), own_folder() as folder:
            write_files(folder, program.files)
            start = time.perf_counter()
            with (
                _as_program(folder, program.stdin),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                exit_code = _execute(program.code, variables)
            seconds = time.perf_counter() - start
            fetched = read_files(folder, program.fetch, size)
        stdout, stderr = out.getvalue(), err.getvalue()
        cut = len(stdout) > size or len(stderr) > size
        ending: Ending = "failed" if exit_code else "ok"
        return RunResult(stdout[:size], stderr[:size], ending, exit_code, seconds, cut, self.level, fetched)

    def session(self) -> InProcess:
        return InProcess({"__name__": "__main__"})


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
    standard_in = sys.stdin
    with working_in(folder):
        sys.stdin = io.StringIO(stdin)
        try:
            yield
        finally:
            sys.stdin = standard_in
