"""Trusted functions that may never return, in worker processes with a CPU time limit.

For generating items only: a worker serves many calls without isolation, so no model output may reach it (use
`gem_envs.sandbox._calls` for that).

Signals (`signal.alarm`) work in the main thread only, and threads cannot be killed, but processes can.
Workers persist between calls, so a call adds about a tenth of a millisecond to the time of the function. The
limit is CPU time, so that a busy machine changes no result; a wall-clock limit ten times as long backs it up.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
from typing import Any

from gem_core._util import orphans
from gem_core._util.forks import after_fork
from gem_core._util.places import Places, stopping

CPU_SECONDS = 2.0
_PATIENCE = 10
"""Wall-clock seconds per CPU second."""
_START = 60.0
"""Time limit in seconds for a worker to import its module on a busy machine."""


class LimitExceeded(Exception):
    """Raised when a call exceeds its time or memory."""


class CallFailed(Exception):
    """Raised when the function raises; the message describes the exception."""


def call(function: str, *args: Any, cpu_seconds: float = CPU_SECONDS) -> Any:
    """Return the result of ``module:function(*args)``, which must be JSON-serializable.

    Raises:
        OutOfTime: The function did not return in time.
        CallFailed: The function raised an exception.
        GivenUp: Nobody waits for the result anymore.
    """
    module = function.partition(":")[0]
    with _places.setdefault(module, Places(_most)).held():
        worker = _take(module)
        try:
            with stopping(worker.kill):
                reply = worker.ask(pickle.dumps((function, args, cpu_seconds)), cpu_seconds * _PATIENCE)
        except BaseException:
            worker.close()
            raise
        _idle.setdefault(module, []).append(worker)
    if "died" in reply:
        raise LimitExceeded(f"more than {cpu_seconds:g} seconds of CPU time, or too much memory")
    if "error" in reply:
        raise CallFailed(reply["error"])
    return reply["value"]


class _Worker:
    def __init__(self, module: str) -> None:
        command, pipes = orphans.announced([sys.executable, "-m", "gem_envs._rg._worker", module])
        self.process = subprocess.Popen(
            command, pass_fds=pipes,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        orphans.end_with_us(self.process.pid)
        self.started = False

    def ask(self, request: bytes, seconds: float) -> dict[str, Any]:
        if self.process.stdin is None or self.process.stdout is None:
            raise LimitExceeded("the worker has no pipes")
        end = time.monotonic() + seconds + (0 if self.started else _START)
        try:
            self.process.stdin.write(struct.pack("!I", len(request)) + request)
            self.process.stdin.flush()
            (size,) = struct.unpack("!I", self._read(4, end))
            reply: dict[str, Any] = json.loads(self._read(size, end))
        except (BrokenPipeError, EOFError) as error:
            raise LimitExceeded(f"the worker is gone ({type(error).__name__})") from error
        self.started = True
        return reply

    def _read(self, size: int, end: float) -> bytes:
        stdout = self.process.stdout
        data = b""
        poll = select.poll()
        poll.register(stdout, select.POLLIN)  # type: ignore[arg-type]
        while len(data) < size:
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                raise LimitExceeded("no answer in time")
            part = os.read(stdout.fileno(), size - len(data))  # type: ignore[union-attr]
            if not part:
                raise EOFError
            data += part
        return data

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.kill()
        orphans.release(self.process.pid)
        self.process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


_idle: dict[str, list[_Worker]] = {}
_places: dict[str, Places] = {}
_most = max(1, min(8, os.cpu_count() or 1))


def _take(module: str) -> _Worker:
    """Return a worker for the exclusive use of one call."""
    try:
        return _idle.get(module, []).pop()
    except IndexError:
        return _Worker(module)


def close_workers() -> None:
    """Stop all idle workers; the next call starts a new one."""
    for workers in [*_idle.values()]:
        while workers:
            workers.pop().close()


def _forget() -> None:
    """Forget the workers in a forked child, because the pipes belong to the parent."""
    for workers in _idle.values():
        for worker in workers:
            worker.process.returncode = 0  # not a child of this process
            for pipe in (worker.process.stdin, worker.process.stdout):
                if pipe is not None:
                    pipe.close()
    _idle.clear()


atexit.register(close_workers)
after_fork(_forget)
