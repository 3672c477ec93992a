"""The process behind `gem_core._util.orphans`: ``python -I -S watcher.py PIPE CALLER``.

It reads records from the pipe and waits for the end of the caller. Then it kills the process groups that are
left, each after its grace. A group whose record arrives later was just being started; the pipe stays open
until its process has sent the record.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import sys
import time

RECORD = struct.Struct("<iI")
"""Process id of a group's leader and its grace in milliseconds; the negative id takes it out again."""
_LATE_SECONDS = 30.0
"""Number of seconds after the caller's end in which records may still arrive."""
_LOOK_SECONDS = 0.5
"""Number of seconds between two looks at the caller where the kernel cannot report its end."""


def main() -> None:
    """Watch until the caller has ended and no group is left."""
    source, caller = int(sys.argv[1]), int(sys.argv[2])
    poll = select.poll()
    poll.register(source, select.POLLIN)
    pidfd = _open(caller)
    if pidfd is not None:
        poll.register(pidfd, select.POLLIN)
    groups: dict[int, float] = {}  # seconds of grace
    ended = None  # time of the caller's end
    data, more = b"", True
    while more or groups:
        if ended is None:
            limit = None if pidfd is not None else _LOOK_SECONDS
        else:
            limit = max(0.0, min([_LATE_SECONDS, *groups.values()]) + ended - time.monotonic())
        ready = [descriptor for descriptor, _ in poll.poll(None if limit is None else limit * 1000)]
        if source in ready:
            part = os.read(source, 1 << 16)
            data, more = data + part, bool(part)
            while len(data) >= RECORD.size:
                pid, grace = RECORD.unpack(data[: RECORD.size])
                data = data[RECORD.size :]
                if pid > 0:
                    groups[pid] = grace / 1000
                else:
                    groups.pop(-pid, None)
            if not more:  # nobody can send another record
                poll.unregister(source)
        if ended is None and (not more or os.getppid() != caller):
            ended = time.monotonic()
            if pidfd is not None:
                poll.unregister(pidfd)
        if ended is not None:
            waited = time.monotonic() - ended
            for pid in [pid for pid, grace in groups.items() if grace <= waited]:
                del groups[pid]
                _kill(pid)
            more = more and waited < _LATE_SECONDS


def _open(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None if the kernel has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
