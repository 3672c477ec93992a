"""Calls of functions in processes that the kernel ends when a call takes too much CPU time.

    run_limited("gem_envs.tools.mcp._database:run_sql", 5.0, path="shop.db", sql="SELECT 1", write=False)

A statement cannot be interrupted inside one opcode of SQLite, and ``trim`` of two long values alone may take
an hour. Only a process can be ended there. Each call has a process of its own, so that calls do not wait for
one another; processes that are done are used again.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from typing import Any

from gem_core._util.forks import ForkSafeLock, after_fork
from gem_core._util.places import stopping

_SPARE_SECONDS = 0.5
"""CPU time in addition to the function's, which may have a limit of its own that ends it more gently."""
_HEAP = 64 * 2**20
"""Limit of SQLite's memory, in bytes: temporary tables, sorted rows, and values."""
_MEMORY = 2 * 2**30
"""Limit of a process's address space, in bytes."""
_MOST_BYTES = 4 * 2**20
"""Maximum size of an answer."""
_IDLE = 8
"""Maximum number of processes that are kept for the next calls."""


class LimitedError(Exception):
    """Raised when a call in another process fails.

    Attributes:
        kind: Name of the exception's class; "CPU time" if the call took too much of it, "process" if the
            process ended in another way.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Process:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )  # fmt: skip

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            LimitedError: The process has ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = b""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline(2 * _MOST_BYTES)
        if not line.endswith(b"\n"):
            self.close()
            if self.process.returncode == -signal.SIGPROF:
                raise LimitedError("CPU time", "it took too long and was stopped")
            raise LimitedError("process", f"its process ended with status {self.process.returncode}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()  # ends an idle process
        self.process.wait()


_idle: list[_Process] = []
_lock = ForkSafeLock()


def run_limited(function: str, seconds: float, **arguments: Any) -> Any:
    """Call a function in another process.

    Args:
        function: The function, as ``MODULE:NAME``.
        seconds: Limit of CPU time, in seconds, so that the load of the machine decides nothing.
        arguments: Its arguments; they and the result have to be JSON values.

    Raises:
        LimitedError: The function raised an exception, or its process was ended.
        GivenUp: Nobody waits for the result anymore; the process was ended.
    """
    with _lock:
        process = _idle.pop() if _idle else None
    if process is None:
        process = _Process()
    try:
        with stopping(process.process.kill):
            answer = process.ask({"function": function, "seconds": seconds, "arguments": arguments})
    except BaseException:
        process.process.kill()
        process.close()
        raise
    with _lock:
        kept = len(_idle) < _IDLE
        if kept:
            _idle.append(process)
    if not kept:
        process.close()
    if "kind" in answer:
        raise LimitedError(answer["kind"], answer["text"])
    return answer["result"]


@atexit.register
def _close() -> None:
    with _lock:
        processes = [*_idle]
        _idle.clear()
    for process in processes:
        process.close()


def _forget() -> None:
    """Forget the processes in a forked child, because they belong to the parent."""
    for process in _idle:
        process.process.returncode = 0
    _idle.clear()


after_fork(_forget)


# -- in the other process -------------------------------------------------------------------------


def _answer(request: dict[str, Any]) -> bytes:
    module, _, name = request["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    signal.setitimer(signal.ITIMER_PROF, request["seconds"] + _SPARE_SECONDS)  # its signal ends the process
    try:
        answer = {"result": function(**request["arguments"])}
    except Exception as error:
        text = "it needs too much memory" if isinstance(error, MemoryError) else str(error)
        answer = {"kind": type(error).__name__, "text": text[:1000]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    data = json.dumps(answer).encode()
    if len(data) > _MOST_BYTES:
        data = json.dumps({"kind": "ValueError", "text": f"a result of {len(data)} bytes"}).encode()
    return data


def main() -> None:
    """Answer requests, one per line, until standard input ends."""
    import resource  # does not exist where no call can be made

    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF,))
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_CORE):
        value = _MEMORY if kind == resource.RLIMIT_AS else 0
        with contextlib.suppress(ValueError, OSError):  # not on macOS, or a lower limit
            resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
    sqlite3.connect(":memory:").execute(f"PRAGMA hard_heap_limit = {_HEAP}").close()
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(_answer(json.loads(line)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
