"""Calls trusted functions on untrusted text, each in a fresh process of a sandbox.

    verify = Calls(Path("verify.py"), packages=("math-verify",))
    verify("equal", answer, reference)

The file is a trusted module. Each fork server runs it once and calls its function ``warm_up()``. A call forks
a child, which imports nothing, runs the function on arguments passed as JSON, and writes its result as JSON.
The child ends after one call, so no change that a text makes to the module outlives the call.

Calls run at the strongest level that works on this machine: `namespace`, or else `process`. Code that an
attacker manages to run inside the child can still forge the result of that one call, so functions should
parse text, not evaluate it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gem_core._util.forks import renew_after_fork
from gem_core._util.places import Attempts
from gem_core.errors import GemError
from gem_envs.sandbox._levels import strongest
from gem_envs.sandbox._limits import ProgramLimits
from gem_envs.sandbox._process import Process
from gem_envs.sandbox._program import Sandbox, cores

CPU_SECONDS = 2.0
_LIMITS = ProgramLimits(
    wall_seconds=30.0, cpu_seconds=CPU_SECONDS, memory_bytes=2 * 2**30, file_bytes=2**20, output_bytes=2**16
)
_PROGRAM = """
import json, sys
sys.path.insert(0, ".")
import {module}
_arguments, _out = json.load(sys.stdin), sys.stdout
sys.stdout = sys.stderr
_result = json.dumps({module}.{function}(*_arguments))
_out.write(_result)
_out.flush()
"""
_WORKERS = 2
"""Maximum number of fork servers per file, each of which holds the imported packages in memory."""
_log = logging.getLogger(__name__)


class CallError(GemError):
    """Raised when a function raises or its process is killed; the message ends with its last output."""


class CallTimeout(CallError):
    """Raised when a call uses up its CPU time or does not return."""


class Calls:
    """Calls the functions of one file; safe to use from any thread.

    The sandbox starts with the first call, and again in a forked process.

    Args:
        file: Python source of the functions. It must define ``warm_up()`` and cannot import gem_core.
        packages: Distributions that the file imports; their requirements are included.
    """

    def __init__(self, file: Path, packages: Sequence[str]) -> None:
        self._file = file
        self._packages = tuple(packages)
        self._module = f"trusted_{file.stem.strip('_')}"
        self._starts = Attempts()
        self._sandbox: Sandbox | None = None
        renew_after_fork(self)

    def __call__(self, function: str, *args: Any, limits: ProgramLimits = _LIMITS) -> Any:
        """Return the result of ``function(*args)``. Arguments and result must be JSON values.

        Raises:
            CallTimeout: The function ran out of time.
            CallError: The function raised, ran out of memory, or returned a value that is not JSON.
        """
        sandbox = self._open()
        program = _PROGRAM.format(module=self._module, function=function)
        files = {f"{self._module}.py": self._file.read_bytes()} if isinstance(sandbox, Process) else None
        result = sandbox.run(program, stdin=json.dumps(args), files=files, limits=limits)
        if result.ending == "timeout":
            raise CallTimeout(f"{function} used more than {limits.cpu_seconds:g} seconds of CPU time")
        if result.ending != "ok":
            raise CallError(f"{function}: {result.stderr.strip()[-300:] or result.exit_code}")
        try:
            return json.loads(result.stdout)
        except (ValueError, RecursionError):
            raise CallError(f"{function} did not write JSON: {result.stdout[:100]!r}") from None

    @property
    def level(self) -> str:
        """Isolation level of the calls."""
        return self._open().level

    def close(self) -> None:
        """End the sandbox; the next call starts a new one."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    def _open(self) -> Sandbox:
        sandbox = self._sandbox
        if sandbox is None:
            with self._starts.one():
                if self._sandbox is None:
                    self._sandbox = self._start()
                sandbox = self._sandbox
        return sandbox

    def _start(self) -> Sandbox:
        check = strongest()
        if check.level != "namespace":
            _warn(check.reason)
        if sys.platform != "linux":  # no fork servers, so each call starts an interpreter, which is slow
            return Process(packages=True, trusted=True)
        from gem_envs.sandbox._namespace import ForkedProcess, Namespace  # Linux only

        modules = {self._module: self._file.read_text(encoding="utf-8")}
        workers = min(_WORKERS, cores())
        if check.level == "namespace":
            return Namespace(packages=self._packages, workers=workers, modules=modules)
        return ForkedProcess(modules=modules, workers=workers)

    def forget_parent(self) -> None:
        """Forget the sandbox in a forked child, because it belongs to the parent."""
        self._sandbox = None


@lru_cache(maxsize=1)
def _warn(reason: str) -> None:
    _log.warning(
        "answers that need symbolic algebra are graded at sandbox level 'process', because level 'namespace' "
        "is not available on this machine: %s",
        reason,
    )
