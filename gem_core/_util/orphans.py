"""Processes that end with this one, even if it is killed.

    command, pipes = announced(command)
    process = subprocess.Popen(command, pass_fds=pipes, start_new_session=True)
    end_with_us(process.pid)
    ...
    release(process.pid)
    process.wait()

Closing a pipe ends a process that reads it, but not one that computes, sleeps, or hangs, and not what that
one has started. The kernel's own signal at the parent's death (``PR_SET_PDEATHSIG``) reaches a single
process, and is sent when the thread that forked it ends. Therefore one small process per caller, the watcher,
waits for the end of the caller and then kills process groups. Each process announces itself before anything
else. A caller that is killed before `end_with_us` therefore leaves nothing behind: the watcher waits while a
process that it does not know yet holds its pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem_core._util.forks import ForkSafeLock, after_fork
from gem_core._util.watcher import RECORD

_WATCHER = str(Path(__file__).with_name("watcher.py"))
_ANNOUNCE = str(Path(__file__).with_name("announce.py"))

_lock = ForkSafeLock(reentrant=True)


@dataclass
class _Watcher:
    """The watcher of this process.

    It is one object, because `gem-core check` takes a replaced attribute of a module for the work of a text.

    Attributes:
        pipe: Where the process reads; None before its start.
        process: The process; None before its start.
        groups: Grace in seconds of each process group.
    """

    pipe: int | None = None
    process: subprocess.Popen[bytes] | None = None
    groups: dict[int, float] = field(default_factory=dict)


_watcher = _Watcher()


def announced(command: Sequence[str], grace: float = 0.0) -> tuple[list[str], tuple[int, ...]]:
    """Return a command that first makes itself known to the watcher, and the descriptors to pass to it.

    Args:
        command: The command; its first word is the path of a program.
        grace: As in `end_with_us`, which is to be called as soon as the process is started.
    """
    if not hasattr(os, "killpg"):  # Windows
        return [*command], ()
    source = pipe()
    words = [sys.executable, "-I", "-S", _ANNOUNCE, str(source), str(round(grace * 1000))]
    return [*words, *command], (source,)


class Announcement:
    """Makes a process of `multiprocessing` known to the watcher.

    Sent as an argument to a process that is being spawned.

    Args:
        grace: As in `end_with_us`.
    """

    def __init__(self, grace: float = 0.0) -> None:
        self._grace = grace
        self._source: Any = None

    def __getstate__(self) -> dict[str, Any]:
        from multiprocessing.reduction import DupFd

        return {"_grace": self._grace, "_source": DupFd(pipe()) if hasattr(os, "killpg") else None}

    def send(self) -> None:
        """Make the calling process known, which is the leader of its process group."""
        if self._source is None:
            return
        source = self._source.detach()
        with contextlib.suppress(BrokenPipeError):  # somebody killed the watcher
            os.write(source, RECORD.pack(os.getpid(), round(self._grace * 1000)))
        os.close(source)


def pipe() -> int:
    """Return the descriptor on which a process can send its own record, before it does anything else."""
    with _lock:
        if _watcher.pipe is None:
            _start()
        assert _watcher.pipe is not None
        return _watcher.pipe


def end_with_us(pid: int, grace: float = 0.0) -> None:
    """Kill a process group when this process has ended in any way.

    Args:
        pid: Process id of the group's leader.
        grace: Seconds after the end of this process in which the group may end by itself.
    """
    if not hasattr(os, "killpg"):  # Windows
        return
    with _lock:
        _watcher.groups[pid] = grace
        _send(pid, grace)


def release(pid: int) -> None:
    """Leave a process group alone that has ended; to be called before its leader is reaped."""
    with _lock:
        if _watcher.groups.pop(pid, None) is not None:
            _send(-pid, 0.0)


def _send(pid: int, grace: float) -> None:
    try:
        os.write(pipe(), RECORD.pack(pid, round(grace * 1000)))
    except BrokenPipeError:  # somebody killed the watcher
        _start()
        for each, seconds in _watcher.groups.items():
            os.write(pipe(), RECORD.pack(each, round(seconds * 1000)))


def _start() -> None:
    """Start a watcher; a later one takes over the descriptor of the first, which other threads may use."""
    theirs, ours = os.pipe()
    try:
        if _watcher.process is not None:
            _watcher.process.wait()
        _watcher.process = subprocess.Popen(
            [sys.executable, "-I", "-S", _WATCHER, str(theirs), str(os.getpid())], pass_fds=(theirs,),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        if _watcher.pipe is not None:
            os.dup2(ours, _watcher.pipe, inheritable=False)
            ours, closed = _watcher.pipe, ours
            os.close(closed)
        _watcher.pipe = ours
    finally:
        os.close(theirs)


def _stop() -> None:
    """End the watcher, which kills the groups that are left."""
    with _lock:
        if _watcher.pipe is not None:
            os.close(_watcher.pipe)
        if _watcher.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                _watcher.process.wait(1.0)  # longer only if a group has a grace
            _watcher.process.returncode = 0
        _watcher.pipe = _watcher.process = None
        _watcher.groups.clear()


def _forget() -> None:
    """Forget the watcher in a forked child, because it belongs to the parent."""
    if _watcher.pipe is not None:
        os.close(_watcher.pipe)  # or else it would seem that the parent may still send records
    if _watcher.process is not None:
        _watcher.process.returncode = 0
    _watcher.pipe = _watcher.process = None
    _watcher.groups.clear()


after_fork(_forget)
atexit.register(_stop)
