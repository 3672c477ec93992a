"""One program and its result, between a caller and a child of a fork server."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Mapping, Sequence

from gem_core.sandbox.files import relative
from gem_core.sandbox.fork_server import ForkServer
from gem_core.sandbox.process import Ending, Limits, RunResult

_KILL_SECONDS = 5.0


class Channel:
    """To one child."""

    def __init__(self, link: socket.socket, server: ForkServer) -> None:
        self.link = link
        self.server = server
        self.over = False

    def close(self) -> None:
        self.link.close()


def exchange(
    channel: Channel,
    code: str,
    stdin: str,
    files: Mapping[str, bytes],
    fetch: Sequence[str],
    limits: Limits,
    *,
    session: bool,
) -> RunResult:
    """Send a program and wait for its end."""
    cpu_seconds = max(1, -int(-limits.cpu_seconds // 1))
    numbers = [cpu_seconds, limits.memory_bytes, limits.file_bytes, limits.processes, limits.open_files]
    request = {"session": session, "limits": numbers, "fetch": [relative(name) for name in fetch]}
    packed = b"".join(
        json.dumps([relative(name), len(data)]).encode() + b"\n" + data for name, data in files.items()
    )
    with contextlib.ExitStack() as stack:
        given = (
            code.encode("utf-8", "surrogatepass"),
            stdin.encode("utf-8", "surrogatepass"),
            b"",
            b"",
            packed,
        )
        descriptors = [_memory_file(stack, data) for data in given]
        start = time.perf_counter()
        with contextlib.suppress(OSError):  # it is gone: what follows sees that
            socket.send_fds(channel.link, [json.dumps(request).encode()], descriptors)
        exit_code, timed_out = _wait(channel, limits.wall_seconds)
        seconds = time.perf_counter() - start
        stdout, more_out = _head(descriptors[2], limits.output_bytes)
        stderr, more_err = _head(descriptors[3], limits.output_bytes)
        fetched = _unpack(descriptors[4], fetch, limits.file_bytes * len(fetch)) if fetch else {}
    if exit_code is None:
        channel.over = True
        exit_code = -9
        if not timed_out:
            stderr += "The process of the sandbox was killed."
    if timed_out or exit_code == -24 or (exit_code == -9 and seconds >= limits.cpu_seconds):
        ending: Ending = "timeout"
    elif exit_code < 0:
        ending = "killed"
    else:
        ending = "failed" if exit_code else "ok"
    return RunResult(
        stdout, stderr, ending, exit_code, seconds, more_out or more_err, channel.server.level, fetched
    )


def _wait(channel: Channel, seconds: float) -> tuple[int | None, bool]:
    """Exit code (None when none came) and whether the time was up; what is stopped has ended then."""
    poll = select.poll()
    poll.register(channel.link, select.POLLIN)
    if poll.poll(seconds * 1000):
        exit_code = _exit_code(channel)
        return exit_code, False
    channel.over = True
    with contextlib.suppress(OSError):
        channel.link.shutdown(socket.SHUT_WR)  # the server kills the child and tells its exit code
    if not poll.poll(_KILL_SECONDS * 1000):
        channel.server.close()  # it hangs: with it ends all that it has started
    _exit_code(channel)
    return None, True


def _exit_code(channel: Channel) -> int | None:
    """From the child or its server; whatever else a program has written into the channel is no exit code."""
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


def _head(descriptor: int, size: int) -> tuple[str, bool]:
    data = os.pread(descriptor, size + 1, 0)
    return data[:size].decode("utf-8", "replace"), len(data) > size


def _unpack(descriptor: int, names: Sequence[str], most: int) -> dict[str, bytes]:
    """Files as the child has packed them; what it has packed wrongly, or unasked, is left out."""
    data = os.pread(descriptor, most + 65536, 0)
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
