"""Requests to a program in a container and its answers, each one line of JSON.

Whatever comes from the container is read with a bound. An answer counts only if it repeats the random ``id``
of its request, which nothing but the program that read the request can know.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_core._util.places import GivenUp, current_clock
from gem_core.errors import SandboxError

START_SECONDS = 60.0
ENGINE_CODES = (125, 126, 127)
"""Exit codes of the engine's own errors."""
_END_SECONDS = 2.0
_STDERR_BYTES = 2**16
_CHUNK = 2**16
_GLANCE = 0.2
"""Seconds after which a wait for an answer checks whether anybody waits for it."""


def answer_to(text: bytes | str, identity: str) -> dict[str, Any] | None:
    """Return the answer in `text` to the request with this id; None if it is something else."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and answer.get("id") == identity else None


class ContainerConversation:
    """Exchange of requests and answers with a running container. Not thread-safe.

    Args:
        command: Command that starts the container.
        folder: Folder that it runs in; Podman writes a file there if the container's memory runs out.
        remove: Function that removes it.

    Raises:
        SandboxError: The command cannot be started.
    """

    def __init__(self, command: Sequence[str], folder: str, remove: Callable[[], None]) -> None:
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, cwd=folder
            )
        except OSError as error:
            raise SandboxError(f"{command[0]} cannot be started: {error}") from error
        self._begun = False
        self._stuck = False  # whether the program still writes, or does not answer
        self._stderr = b""
        self.timed_out = False
        self._end = weakref.finalize(self, _end_container, self._process, remove)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._give, self._out, self._err = (
            stream.fileno() for stream in (process.stdin, process.stdout, process.stderr)
        )
        for descriptor in (self._give, self._out, self._err):
            os.set_blocking(descriptor, False)

    def ask(self, request: Mapping[str, Any], seconds: float, most: int) -> dict[str, Any] | None:
        """Return the answer to a request; None if there is none, which ends the container.

        Args:
            request: Fields of the request.
            seconds: Time until the answer; the first may take longer, because the container starts.
            most: Length of the longest answer, in bytes.

        Raises:
            SandboxError: The container did not start.
        """
        answer = self.exchange(request, seconds + (0 if self._begun else START_SECONDS), most)
        if answer is None:
            stderr, begun = self.end(), self._begun
            if not begun:
                message = stderr[-500:] or "does the image have bash and python3?"
                raise SandboxError(f"the container did not start: {message}")
        self._begun = True
        return answer

    def exchange(self, request: Mapping[str, Any], seconds: float, most: int) -> dict[str, Any] | None:
        """Return the answer to a request; None if it does not arrive, is too long, or is not one to it.

        An exchange that raises, for instance a `KeyboardInterrupt`, ends the container.

        Raises:
            GivenUp: Nobody waits for the answer anymore.
        """
        if not self._end.alive:
            return None
        identity = secrets.token_hex(16)
        data = json.dumps({**request, "id": identity}).encode() + b"\n"
        try:
            line = self._line(data, time.monotonic() + seconds, most)
        except BaseException:
            self.close()
            raise
        return None if line is None else answer_to(line, identity)

    def end(self) -> str:
        """End the container; return the last text of its standard error."""
        if self._end.alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0 if self._stuck else _END_SECONDS)
            end = time.monotonic() + _END_SECONDS
            while time.monotonic() < end and self._read_stderr():
                pass
            self.close()
        return self._stderr.decode("utf-8", "replace").strip()

    @property
    def exit_code(self) -> int | None:
        """Exit code of the engine; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """Remove the container. May be called more than once."""
        self._end()

    def _line(self, data: bytes, end: float, most: int) -> bytes | None:
        """Send a request; return the line of `most` bytes or less that follows, and nothing else."""
        poll = select.poll()
        poll.register(self._give, select.POLLOUT)
        for descriptor in (self._out, self._err):
            poll.register(descriptor, select.POLLIN)
        line, rest = bytearray(), memoryview(data)
        while (left := end - time.monotonic()) > 0:
            if (clock := current_clock()) is not None and clock.given_up:
                self._stuck = True
                raise GivenUp
            for descriptor, _ in poll.poll(min(left, _GLANCE) * 1000):
                if descriptor == self._give:
                    rest = self._send(rest)
                    if not rest:
                        poll.unregister(descriptor)
                elif descriptor == self._err:
                    if not self._read_stderr():
                        poll.unregister(descriptor)
                else:
                    part = _read(descriptor)
                    line += part
                    self._stuck = len(line) > most
                    if not part or self._stuck or b"\n" in line[:-1]:
                        return None
                    if line.endswith(b"\n"):
                        return bytes(line)
        self.timed_out = self._stuck = True
        return None

    def _send(self, data: memoryview) -> memoryview:
        """Send as much as the pipe takes; return the rest, which is nothing if the container has ended."""
        try:
            return data[os.write(self._give, data[:_CHUNK]) :]
        except BlockingIOError:
            return data
        except OSError:
            return data[:0]

    def _read_stderr(self) -> bool:
        part = _read(self._err)
        self._stderr = (self._stderr + part)[-_STDERR_BYTES:]
        return bool(part)


def _read(descriptor: int) -> bytes:
    with contextlib.suppress(OSError):
        return os.read(descriptor, _CHUNK)
    return b""


def _end_container(process: subprocess.Popen[bytes], remove: Callable[[], None]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # ends the program inside
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    remove()
    process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
