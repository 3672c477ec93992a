"""A persistent bash at level ``namespace`` or ``container``, with its variables, folder, and jobs.

    shell = open_shell()
    shell.write({"notes.txt": File(b"hello")})
    shell.run("cd /app && wc -c notes.txt").output

The shell starts in ``/app``, which is empty at first and is removed by `close`. A command that takes too long
is interrupted, or killed if it ignores the interrupt; the files stay. ``rm -rf /`` removes only this shell's
files.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from gem_core.errors import SandboxError
from gem_envs.sandbox._conversation import answer_to
from gem_envs.sandbox._fork_server import DRIVER
from gem_envs.sandbox._levels import open_sandbox
from gem_envs.sandbox._limits import ProgramLimits
from gem_envs.sandbox._workspace import relative

ShellEnding: TypeAlias = Literal["ok", "timeout", "exited", "lost"]
"""In order: the command ended; was interrupted; ended the shell; was killed with the whole sandbox."""

LIMITS = ProgramLimits(wall_seconds=10, cpu_seconds=60, file_bytes=32 * 2**20, processes=40, open_files=256)
"""Default limits of a command; all except wall time apply to each of its processes."""

_SOURCE = Path(__file__).with_name("_guest") / "shell.py"
_ANSWER = "sys.stdout.write(DRIVER.answer(sys.stdin.buffer.read()))"
_BEGIN = f"import sys, {DRIVER}\nDRIVER = {DRIVER}.protect()\n"
_SPARE_SECONDS = 40.0
"""Extra time for the driver to interrupt, kill, and restart bash."""
_MOST_BYTES = 16 * 2**20
_FETCHED_BYTES = 64 * 2**10
_OVERHEAD = 2**17
"""Bytes of an answer in addition to its files or its output, such as the name of a folder."""
_DISK = 64 * 2**20


class ShellResult(NamedTuple):
    """Result of a command."""

    output: str
    """Interleaved standard output and error; if they are too long, the middle is cut out."""
    status: int
    """Exit status; above 128, 128 plus the number of the signal that ended the command."""
    ending: ShellEnding
    folder: str
    """Working folder of the shell after the command."""
    left_out: int = 0
    """Number of bytes of output that were left out."""


@dataclass(frozen=True)
class File:
    """A file; a symbolic link if `target` is set; a folder if `folder` is True.

    What `Shell.read` does not read, such as a pipe or a large file, has `other` set and is not written.
    """

    data: bytes = b""
    mode: int = 0o644
    target: str | None = None
    folder: bool = False
    other: bool = False

    @property
    def text(self) -> str:
        """Contents as text; invalid UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


Files: TypeAlias = Mapping[str, File]
"""Files by their path below a folder."""


class Transport(Protocol):
    """Interface of an object that passes requests to the driver in a sandbox."""

    def ask(self, request: Mapping[str, Any], seconds: float, most: int) -> dict[str, Any] | None:
        """Return the answer; None if none of at most `most` bytes arrives in time, which ends the sandbox."""
        ...

    def close(self) -> None:
        """End the sandbox."""
        ...


class Shell:
    """One bash in its own sandbox. Not thread-safe.

    Args:
        transport: Connection to the driver in the sandbox.
        level: Name of the isolation level.
        limits: Resource limits of each command.
    """

    def __init__(self, transport: Transport, level: str, limits: ProgramLimits = LIMITS) -> None:
        self.level = level
        self._transport = transport
        self._limits = limits
        self._lost = False
        self._ask("start", limits=limits.kernel_limits(), env=_environment())

    @property
    def alive(self) -> bool:
        """Whether the sandbox exists; its files are lost when it ends."""
        return not self._lost

    def run(self, command: str, *, seconds: float | None = None, characters: int = 10_000) -> ShellResult:
        """Run a command of one or more lines. Whatever it does is a result, never an exception.

        Args:
            command: Text for bash.
            seconds: Wall-clock limit in seconds. None uses the shell's limits.
            characters: Maximum number of characters of output to return.
        """
        seconds = self._limits.wall_seconds if seconds is None else seconds
        most = 12 * characters + _OVERHEAD  # a character takes up to 12 bytes in JSON
        answer = self._ask("run", seconds, most, command=command, seconds=seconds, characters=characters)
        if answer is None:
            return ShellResult("", 137, "lost", "/app")
        return ShellResult(
            str(answer["output"]), int(answer["status"]), answer["ending"], str(answer["folder"]),
            int(answer["left_out"]),
        )  # fmt: skip

    def write(self, files: Files, base: str = "/app") -> None:
        """Write files below the folder `base`.

        Raises:
            SandboxError: A path leads out of the folder, or the sandbox has ended.
        """
        entries = [_packed(relative(path), file) for path, file in files.items() if not file.other]
        if self._ask("write", entries=entries, base=base) is None:
            raise SandboxError("the sandbox of the shell has ended")

    def renew(self, base: str) -> None:
        """End everything that still runs and replace the folder `base` by an empty one, whatever is there.

        Raises:
            SandboxError: That failed, or the sandbox has ended.
        """
        if self._ask("renew", base=base) is None:
            raise SandboxError(f"{base} cannot be replaced by an empty folder")

    def fetch(self, path: str) -> bytes | None:
        """End everything that still runs and return the bytes of a file of at most 64 KiB.

        A link, another kind of file, and a larger file count as empty. None means that nothing is there.
        """
        answer = self._ask("fetch", path=path, bytes=_FETCHED_BYTES)
        data = None if answer is None else answer["data"]
        return None if data is None else base64.b64decode(data)

    def read(self) -> dict[str, File]:
        """End everything that still runs and return the files below ``/app``.

        At most 16 MiB are read in total; `File.other` marks what is not.

        Raises:
            SandboxError: The names alone are longer than that, or the sandbox has ended.
        """
        answer = self._ask("read", 0.0, _MOST_BYTES + _OVERHEAD, bytes=_MOST_BYTES)
        if answer is None or not answer["whole"]:
            raise SandboxError("the files of the shell cannot be read")
        entries = answer["entries"]
        return {str(path): _unpacked(str(kind), int(mode), str(data)) for kind, path, mode, data in entries}

    def close(self) -> None:
        """End the shell and everything that it started. May be called more than once."""
        self._lost = True
        self._transport.close()

    def _ask(
        self, kind: str, wait: float = 0.0, most: int = _OVERHEAD, /, **fields: Any
    ) -> dict[str, Any] | None:
        if self._lost:
            return None
        self._lost = True  # also if the exchange is interrupted: the next one would receive its answer
        try:
            answer = self._transport.ask({"kind": kind, **fields}, wait + _SPARE_SECONDS, most)
        except BaseException:
            self._transport.close()
            raise
        self._lost = answer is None
        return answer


def open_shell(
    level: str | None = None,
    *,
    image: str | None = None,
    packages: tuple[str, ...] = (),
    limits: ProgramLimits = LIMITS,
    whole_image: bool = False,
) -> Shell:
    """Open a new shell.

    Args:
        level: "namespace" or "container". None uses "namespace". Weaker levels are rejected: at level
            ``process`` a command could remove the caller's files.
        image: Image of the container, with bash and python3. None uses GEM_CORE_SANDBOX_IMAGE.
        packages: Distributions that Python can import in the shell, at level ``namespace``.
        limits: Resource limits of each command.
        whole_image: Whether a container's commands may change the whole image, as the image's own user and in
            its own ``/app``. The engine's defaults then replace our stricter limits, still without a network.

    Raises:
        SandboxError: The level is not available on this machine, or is too weak.
        ConfigError: The level is unknown.
        MissingDependency: A package is not installed.
    """
    if level == "container":
        from gem_envs.sandbox._container import Container

        container = Container(image=image, disk_bytes=_DISK)
        return Shell(container.start(_SOURCE, limits, whole_image), level, container.inside(limits))
    sandbox = open_sandbox(level, min_level="namespace", packages=packages, programs=True)
    return Shell(_InSession(sandbox.session()), sandbox.level, limits)


class _InSession:
    """Driver in a session of level ``namespace``."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._begun = False

    def ask(self, request: Mapping[str, Any], seconds: float, most: int) -> dict[str, Any] | None:
        limits = replace(
            LIMITS, wall_seconds=seconds, cpu_seconds=seconds + 60, memory_bytes=2**32, file_bytes=2**28,
            output_bytes=most,
        )  # fmt: skip  # limits of the driver, which sets those of its bash
        code = _ANSWER if self._begun else _BEGIN + _ANSWER
        self._begun = True
        identity = secrets.token_hex(16)
        stdin = json.dumps({**request, "id": identity})
        result = self._session.run(code, stdin=stdin, limits=limits)
        return None if result.ending != "ok" or result.cut else answer_to(result.stdout, identity)

    def close(self) -> None:
        self._session.close()


def _environment() -> dict[str, str]:
    python = str(Path(os.path.realpath(sys.base_prefix), "bin"))
    return {
        "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin", "HOME": "/app", "PWD": "/app", "LANG": "C.UTF-8",
        "TERM": "dumb", "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
    }  # fmt: skip


def _packed(path: str, file: File) -> list[Any]:
    if file.target is not None:
        return ["link", path, file.mode, file.target]
    if file.folder:
        return ["folder", path, 0o755, ""]
    return ["file", path, file.mode, base64.b64encode(file.data).decode()]


def _unpacked(kind: str, mode: int, data: str) -> File:
    if kind == "link":
        return File(mode=mode, target=data)
    if kind == "other":
        return File(mode=mode, other=True)
    return File(mode=mode, folder=True) if kind == "folder" else File(base64.b64decode(data), mode)
