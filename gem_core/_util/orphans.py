"""Processes that end with this one, even if it is killed.

    process = subprocess.Popen(command, start_new_session=True)
    end_with_us(process.pid)
    ...
    release(process.pid)
    process.wait()

Closing a pipe ends a process that reads it, but not one that computes, sleeps, or hangs, and not what that
one has started. The kernel's own signal at the parent's death (``PR_SET_PDEATHSIG``) reaches a single
process, and is sent when the thread that forked it ends. Therefore one small process per caller, the watcher,
waits for the end of the caller and then kills process groups.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from pathlib import Path

from gem_core._util.forks import ForkSafeLock, after_fork
from gem_core._util.watcher import RECORD

_SCRIPT = str(Path(__file__).with_name("watcher.py"))

_lock = ForkSafeLock(reentrant=True)
_pipe: int | None = None
"""Where the watcher reads; None before its start."""
_watcher: subprocess.Popen[bytes] | None = None
_groups: dict[int, float] = {}


def pipe() -> int:
    """Return the descriptor on which a process can send its own record, before it does anything else.

    A caller that is killed between the start of a process and `end_with_us` then leaves nothing behind.
    """
    with _lock:
        if _pipe is None:
            _start()
        assert _pipe is not None
        return _pipe


def end_with_us(pid: int, grace: float = 0.0) -> None:
    """Kill a process group when this process has ended in any way.

    Args:
        pid: Process id of the group's leader.
        grace: Seconds after the end of this process in which the group may end by itself.
    """
    if not hasattr(os, "killpg"):  # Windows
        return
    with _lock:
        _groups[pid] = grace
        _send(pid, grace)


def release(pid: int) -> None:
    """Leave a process group alone that has ended; to be called before its leader is reaped."""
    with _lock:
        if _groups.pop(pid, None) is not None:
            _send(-pid, 0.0)


def _send(pid: int, grace: float) -> None:
    try:
        os.write(pipe(), RECORD.pack(pid, round(grace * 1000)))
    except BrokenPipeError:  # somebody killed the watcher
        _start()
        for each, seconds in _groups.items():
            os.write(pipe(), RECORD.pack(each, round(seconds * 1000)))


def _start() -> None:
    """Start a watcher; a later one takes over the descriptor of the first, which other threads may use."""
    global _pipe, _watcher
    theirs, ours = os.pipe()
    try:
        if _watcher is not None:
            _watcher.wait()
        _watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", _SCRIPT, str(theirs), str(os.getpid())], pass_fds=(theirs,),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        if _pipe is not None:
            os.dup2(ours, _pipe, inheritable=False)
            ours, closed = _pipe, ours
            os.close(closed)
        _pipe = ours
    finally:
        os.close(theirs)


def _stop() -> None:
    """End the watcher, which kills the groups that are left."""
    global _pipe, _watcher
    with _lock:
        if _pipe is not None:
            os.close(_pipe)
        if _watcher is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                _watcher.wait(1.0)  # longer only if a group has a grace
            _watcher.returncode = 0
        _pipe = _watcher = None
        _groups.clear()


def _forget() -> None:
    """Forget the watcher in a forked child, because it belongs to the parent."""
    global _pipe, _watcher
    if _pipe is not None:
        os.close(_pipe)  # or else it would seem that the parent may still send records
    if _watcher is not None:
        _watcher.returncode = 0
    _pipe = _watcher = None
    _groups.clear()


after_fork(_forget)
atexit.register(_stop)
