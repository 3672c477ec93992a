"""Levels ``none`` and ``process`` with the interface that all levels have."""

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
from gem_core.sandbox.files import own_folder, read_files, write_files
from gem_core.sandbox.process import Limits, RunResult, run_python


class Process:
    """Level ``process``; see that module for what it does not stop.

    Args:
        packages: Whether programs can import all that is installed.
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
        limits: Limits | None = None,
    ) -> RunResult:
        """See `levels.Sandbox.run`."""
        return run_python(
            code, stdin=stdin, limits=limits, packages=self._packages, files=files, fetch=fetch
        )  # fmt: skip

    def session(self) -> Any:
        """Not at this level.

        Raises:
            SandboxError: Always.
        """
        raise SandboxError("level 'process' has no sessions; use level 'namespace' or stateful=False")

    def close(self) -> None:
        """Nothing stays between two programs."""


class InProcess:
    """Level ``none``: the program runs in this process. For programs that you wrote yourself.

    No limit holds, not even that of time. Programs run one after the other, because standard output is
    one for the whole process.
    """

    level = "none"
    alive = True
    """As a session: it cannot end by itself."""
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
        limits: Limits | None = None,
    ) -> RunResult:
        """See `levels.Sandbox.run`; `limits` have no effect but on the length of the output."""
        out, err = io.StringIO(), io.StringIO()
        most = (limits or Limits()).output_bytes
        variables = {"__name__": "__main__"} if self._variables is None else self._variables
        with self._lock, own_folder() as folder:
            write_files(folder, files or {})
            start = time.perf_counter()
            with _as_program(folder, stdin), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                exit_code = _execute(code, variables)
            seconds = time.perf_counter() - start
            fetched = read_files(folder, fetch, most)
        shown = (out.getvalue()[:most], err.getvalue()[:most])
        cut = len(out.getvalue()) > most or len(err.getvalue()) > most
        ending = "failed" if exit_code else "ok"
        return RunResult(*shown, ending, exit_code, seconds, cut, "none", fetched)  # type: ignore[arg-type]

    def session(self) -> InProcess:
        """A sandbox whose variables stay."""
        return InProcess({"__name__": "__main__"})

    def close(self) -> None:
        """Nothing to end."""


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
    before, given = os.getcwd(), sys.stdin
    os.chdir(folder)
    sys.stdin = io.StringIO(stdin)
    try:
        yield
    finally:
        os.chdir(before)
        sys.stdin = given
