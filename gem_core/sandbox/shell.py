"""A bash that stays, at level ``namespace`` or ``container``: variables, folder and jobs last until `close`.

    shell = open_shell()
    shell.write({"notes.txt": File(b"hello")})
    shell.run("cd /app && wc -c notes.txt").output

The shell works in ``/app``, which is empty at first and gone with it. A command that takes too long is
interrupted; what no interrupt ends is killed, and the files stay. ``rm -rf /`` takes this shell's files only.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from gem_core.errors import SandboxError
from gem_core.sandbox.files import relative
from gem_core.sandbox.levels import open_sandbox
from gem_core.sandbox.process import Limits

ShellEnding: TypeAlias = Literal["ok", "timeout", "exited", "lost"]
"""It ended; it was interrupted; it ended the shell; it had to be killed, with everything beside it."""

LIMITS = Limits(wall_seconds=10, cpu_seconds=60, file_bytes=32 * 2**20, processes=40, open_files=256)
"""Of a command: seconds on the clock; the rest holds for each of its processes."""

_SOURCE = Path(__file__).with_name("_shell.py")
_SPARE_SECONDS = 20.0
"""For the driver to interrupt, to kill and to start anew, beyond the time of a command."""
_MOST_BYTES = 16 * 2**20
_DISK = 64 * 2**20


class ShellResult(NamedTuple):
    """What a command did."""

    output: str
    """Standard output and error as they came, the middle left out where there was too much."""
    status: int
    """Exit status; above 128: the signal that ended it."""
    ending: ShellEnding
    folder: str
    """Where the shell is now."""
    left_out: int = 0
    """Bytes of output that are not shown."""


@dataclass(frozen=True)
class File:
    """A file, or where `target` is given a symbolic link, or where `folder` a folder."""

    data: bytes = b""
    mode: int = 0o644
    target: str | None = None
    folder: bool = False

    @property
    def text(self) -> str:
        """The data as text."""
        return self.data.decode("utf-8", "replace")


Files: TypeAlias = Mapping[str, File]
"""By their path below a folder."""


class Transport(Protocol):
    """How requests reach the driver in a sandbox."""

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None when there is none in time, and never again."""
        ...

    def close(self) -> None:
        """End the sandbox."""
        ...


class Shell:
    """One bash in a sandbox of its own; from one thread at a time.

    Args:
        transport: To the driver.
        level: Its isolation.
        limits: Of each command.
    """

    def __init__(self, transport: Transport, level: str, limits: Limits = LIMITS) -> None:
        self.level = level
        self._transport = transport
        self._limits = limits
        self._lost = False
        numbers = [
            limits.cpu_seconds, limits.memory_bytes, limits.file_bytes, limits.processes, limits.open_files
        ]  # fmt: skip
        self._ask("start", limits=[int(n) for n in numbers], env=_environment())

    def run(self, command: str, *, seconds: float | None = None, characters: int = 10_000) -> ShellResult:
        """Run a command, of one line or of many; whatever it does is a result, never an exception.

        Args:
            command: For bash.
            seconds: On the clock. None for that of the limits.
            characters: Of output that come back.
        """
        seconds = self._limits.wall_seconds if seconds is None else seconds
        answer = self._ask("run", seconds, command=command, seconds=seconds, characters=characters)
        if answer is None:
            return ShellResult("", 137, "lost", "/app")
        return ShellResult(
            str(answer["output"]), int(answer["status"]), answer["ending"], str(answer["folder"]),
            int(answer["left_out"]),
        )  # fmt: skip

    def write(self, files: Files, base: str = "/app") -> None:
        """Put files below the folder `base`.

        Raises:
            SandboxError: A path that leads out of it, or the sandbox has ended.
        """
        entries = [_packed(relative(path), file) for path, file in files.items()]
        if self._ask("write", entries=entries, base=base) is None:
            raise SandboxError("the sandbox of the shell has ended")

    def read(self) -> dict[str, File]:
        """The files below ``/app``, up to 16 MiB, once everything that still ran was ended."""
        answer = self._ask("read", bytes=_MOST_BYTES)
        entries = [] if answer is None else answer["entries"]
        return {str(path): _unpacked(str(kind), int(mode), str(data)) for kind, path, mode, data in entries}

    def close(self) -> None:
        """End the shell and all that it has started. May be called more than once."""
        self._lost = True
        self._transport.close()

    def _ask(self, kind: str, wait: float = 0.0, /, **fields: Any) -> dict[str, Any] | None:
        if self._lost:
            return None
        answer = self._transport.ask({"kind": kind, **fields}, wait + _SPARE_SECONDS)
        self._lost = answer is None
        return answer


def open_shell(
    level: str | None = None,
    *,
    image: str | None = None,
    packages: tuple[str, ...] = (),
    limits: Limits = LIMITS,
    whole_image: bool = False,
) -> Shell:
    """A new shell.

    Args:
        level: "namespace" or "container"; None takes "namespace". Nothing weaker will do: at level
            ``process`` a command could remove the caller's files.
        image: Of the container; it needs bash and python3. None takes GEM_CORE_SANDBOX_IMAGE.
        packages: Distributions that Python in there can import, at level ``namespace``.
        limits: Of each command.
        whole_image: Of a container: the image can be changed, and its own user and ``/app`` stay. The
            engine's defaults hold then instead of our stricter limits; there is no network all the same.

    Raises:
        SandboxError: The level is not available here, or too weak.
        ConfigError: No such level.
        MissingDependency: A package is not installed.
    """
    if level == "container":
        from gem_core.sandbox.container import Container

        return Shell(
            Container(image=image, disk_bytes=_DISK).start(_SOURCE, limits, whole_image), level, limits
        )
    sandbox = open_sandbox(level, min_level="namespace", packages=packages, programs=True)
    return Shell(_InSession(sandbox.session()), sandbox.level, limits)


class _InSession:
    """The driver in a session of level ``namespace``."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._begun = False

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        limits = replace(
            LIMITS, wall_seconds=seconds, cpu_seconds=seconds + 60, memory_bytes=2**32, file_bytes=2**28,
            output_bytes=2**27,
        )  # fmt: skip  # of the driver; its bash has those that it is told
        if not self._begun:
            self._session.run(f"{_SOURCE.read_text(encoding='utf-8')}\nDRIVER = protect()\n", limits=limits)
            self._begun = True
        code = "sys.stdout.write(json.dumps(DRIVER.handle(json.load(sys.stdin))))"
        result = self._session.run(code, stdin=json.dumps(request), limits=limits)
        if result.ending != "ok":
            return None
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

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
    return File(mode=mode, folder=True) if kind == "folder" else File(base64.b64decode(data), mode)
