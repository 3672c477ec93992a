"""Sends programs to children of a fork server and receives their results."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence

from gem_core._util.places import stopping
from gem_envs.sandbox._fork_server import ForkServer
from gem_envs.sandbox._program import Program
from gem_envs.sandbox._result import RunResult, ending_of, head
from gem_envs.sandbox._workspace import relative

_KILL_SECONDS = 5.0


class Channel:
    """Connection to one child; `over` is True once the child cannot run another program."""

    def __init__(self, link: socket.socket, server: ForkServer) -> None:
        self.link = link
        self.server = server
        self.over = False

    def stop(self) -> None:
        """Let the server kill the child, which then sends its exit code."""
        self.over = True
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.link.close()


def exchange(channel: Channel, program: Program, *, session: bool) -> RunResult:
    """Send a program to the child and wait until it ends.

    Raises:
        GivenUp: The current call was given up, and the program was stopped.
    """
    limits, fetch = program.limits, program.fetch
    request = {
        "session": session,
        "limits": limits.kernel_limits(),
        "fetch": [relative(name) for name in fetch],
    }
    size = limits.output_bytes
    packed = b"".join(
        json.dumps([relative(name), len(data)]).encode() + b"\n" + data
        for name, data in program.files.items()
    )
    with contextlib.ExitStack() as stack:
        contents = (*program.encoded(), b"", b"", packed)
        descriptors = [_memory_file(stack, data) for data in contents]
        start = time.perf_counter()
        try:
            with stopping(channel.stop):
                with contextlib.suppress(OSError):  # the child has ended, which the following lines detect
                    socket.send_fds(channel.link, [json.dumps(request).encode()], descriptors)
                exit_code, timed_out = _wait(channel, limits.wall_seconds)
        except BaseException:
            channel.over = True  # its next answer would be that to this program
            raise
        seconds = time.perf_counter() - start
        stdout, more_out = head(os.pread(descriptors[2], size + 1, 0), size)
        stderr, more_err = head(os.pread(descriptors[3], size + 1, 0), size)
        fetched = _unpack(descriptors[4], fetch, limits.file_bytes * len(fetch)) if fetch else {}
    if exit_code is None:
        channel.over = True
        exit_code = -signal.SIGKILL
        if not timed_out:
            stderr += "The process of the sandbox was killed."
    out_of_cpu = exit_code == -signal.SIGKILL and seconds >= limits.cpu_seconds
    ending = ending_of(exit_code, timed_out=timed_out or out_of_cpu)
    cut = more_out or more_err
    return RunResult(
        stdout, stderr, ending, exit_code, seconds, cut, channel.server.level, fetched, timed_out
    )


def _wait(channel: Channel, seconds: float) -> tuple[int | None, bool]:
    """Wait for the program, or stop it when its time is up; return exit code and whether it was stopped."""
    poll = select.poll()
    poll.register(channel.link, select.POLLIN)
    if poll.poll(seconds * 1000):
        exit_code = _exit_code(channel)
        return exit_code, False
    channel.stop()
    if not poll.poll(_KILL_SECONDS * 1000):
        channel.server.close()  # it hangs; everything that it started ends with the server
    _exit_code(channel)
    return None, True


def _exit_code(channel: Channel) -> int | None:
    """Return the exit code sent by the child or its server; None if a program wrote something else."""
    try:
        message = channel.link.recv(65536)
        answer = json.loads(message) if message else {"exit": None}
        value = answer["exit"]
        channel.over = channel.over or "over" in answer
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        value = None
    if not isinstance(value, int) or not -64 <= value <= 255:
        return None
    if value < 0:
        channel.over = True
    return value


def _memory_file(stack: contextlib.ExitStack, data: bytes) -> int:
    descriptor = os.memfd_create("gem-sandbox", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done:])
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _unpack(descriptor: int, names: Sequence[str], max_bytes: int) -> dict[str, bytes]:
    """Return the files that the child packed, without those that are malformed or were not requested."""
    data = os.pread(descriptor, max_bytes + 65536, 0)
    files, position = {}, 0
    with contextlib.suppress(ValueError, TypeError, OverflowError, RecursionError):
        while position < len(data):
            end = data.index(b"\n", position)
            name, size = json.loads(data[position:end])
            size = max(0, int(size))
            if name in names:
                files[name] = data[end + 1 : end + 1 + size]
            position = end + 1 + size
    return files
