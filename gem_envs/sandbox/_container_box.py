"""Run a foreign program, such as a coding agent, in a container, with a port that the caller serves.

    async with ContainerBox(["my-agent"], {}, container=container, port=8000, socket=path) as box:
        ended = await box.wait()

As in a `Box`, the program has the folder ``/app``, whose files are returned at the end, and no network but a
loopback device. Its programs are those of the image, which it cannot change. A relay beside it forwards the
port to the Unix socket of the caller. Its user has no rights; nothing of the caller's environment is there.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import io
import json
import secrets
import shlex
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from gem_core._util.forks import ForkSafeLock
from gem_core._util.threads import in_thread
from gem_core._util.waiting import Overdue, within
from gem_core.errors import MissingDependency, SandboxError
from gem_envs.sandbox._box import SHOWN, BoxEnd, BoxLimits, pack, unpack
from gem_envs.sandbox._container import USER, Container
from gem_envs.sandbox._conversation import ENGINE_CODES, START_SECONDS, answer_to
from gem_envs.sandbox._limits import ProgramLimits
from gem_envs.sandbox._shell import Files

HOME = "/gem-home"
"""Home of the program; images have no such folder."""
_SOCKET = "/gem-gateway"
_GUEST = Path(__file__).with_name("_guest")
_END_SECONDS = 2.0
_SLACK = 2**17
"""Bytes of an answer in addition to the files."""
_FIND = "import shutil, sys; sys.exit(3 * (shutil.which(sys.argv[1]) is None))"
_checking = ForkSafeLock()


class ContainerBox:
    """A program in a container.

    Args:
        command: The program and its arguments.
        variables: Its environment variables, besides those of the image.
        container: Engine and image.
        files: Files by path below ``app``, its working folder, or `HOME`.
        stdin: Text of its standard input.
        folder: Its working folder, "/app" or `HOME`.
        port: Port on its loopback device that leads to `socket`.
        socket: Path of a Unix socket that the caller serves; None if nothing is served.
        limits: Limits; each of its folders has the size `disk_bytes`, and `files` does not apply.
        grace: Number of seconds between the request to end and the kill.
    """

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        container: Container,
        files: Files | None = None,
        stdin: str = "",
        folder: str = "/app",
        port: int,
        socket: str | None = None,
        limits: BoxLimits | None = None,
        grace: float = 5.0,
    ) -> None:
        self._container, self._socket, self._limits = container, socket, limits or BoxLimits()
        self._name, self._id = f"gem-core-{uuid.uuid4().hex}", secrets.token_hex(16)
        archive = io.BytesIO()
        pack(archive, files or {})
        self._request = {
            "id": self._id,
            "command": list(command),
            "env": {**variables, "HOME": HOME, "PWD": folder, "TMPDIR": "/tmp"},
            "files": base64.b64encode(archive.getvalue()).decode(),
            "stdin": base64.b64encode(stdin.encode("utf-8", "replace")).decode(),
            "folder": folder,
            "port": port if socket else 0,
            "socket": _SOCKET,
            "grace": grace,
            "shown": SHOWN,
            "result_bytes": self._limits.result_bytes,
        }
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> ContainerBox:
        """Start the program.

        Raises:
            SandboxError: The engine or the image does not work.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="gem-agent-")  # Podman may write a file there
        self._errors = Path(self._folder.name, "errors").open("w+b")  # noqa: SIM115  # closed with it
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def _start(self) -> None:
        processes = self._container.inside(_program_limits(self._limits)).processes
        request = {**self._request, "limits": replace(self._limits, processes=processes).process_limits()}
        code = "\n".join((_GUEST / name).read_text("utf-8") for name in ("foreign.py", "agent.py"))
        pipe = asyncio.subprocess.PIPE
        try:
            options = await in_thread(box_options, self._container, self._limits)
            if self._socket:
                options += ["--volume", f"{self._socket}:{_SOCKET}"]
            command = self._container.command(self._name, options, code)
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=self._errors, cwd=self._folder.name,
                start_new_session=True, limit=2 * self._limits.result_bytes + _SLACK,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"the engine {self._container.engine[0]!r} does not work: {error}") from error
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        try:
            answer = await within(START_SECONDS, self._answer())
        except Overdue:
            raise SandboxError(f"the container did not start within {START_SECONDS:g} seconds") from None
        if answer is None:
            raise SandboxError(f"the container did not start: {await self._said()}")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the container."""
        await self._close()

    async def wait(self) -> BoxEnd:
        """Wait until the program ends, and return what it left.

        Raises:
            SandboxError: The container was killed, or what it says is not of its first process.
        """
        answer = await self._answer() or {}
        try:
            files, output = answer["files"], base64.b64decode(answer["output"])
            left = None if files is None else unpack(io.BytesIO(base64.b64decode(files)))
            return BoxEnd(int(answer["status"]), output.decode("utf-8", "replace").strip(), left)
        except (KeyError, TypeError, ValueError):
            raise SandboxError(f"the container of the program was lost: {await self._said()}") from None

    def end(self) -> None:
        """Ask the program to end; `wait` returns when it has, or was killed after the grace period."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"end\n")

    async def _answer(self) -> dict[str, Any] | None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            return answer_to(await self._process.stdout.readline(), self._id)
        except ValueError:  # a line that is too long
            return None

    async def _said(self) -> str:
        """Return the end of what the engine and the first process said."""
        await self._close()
        return self._last or "it said nothing"

    async def _close(self) -> None:
        if self._errors.closed:
            return
        try:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()  # ends the first process, and so the container
                await within(_END_SECONDS, self._process.wait())
        except Overdue:
            pass
        finally:
            try:
                await in_thread(self._container.remove, self._name)
            finally:
                if self._process is not None and self._process.returncode is None:
                    self._process.kill()
                    await self._process.wait()
                self._errors.seek(0)
                self._last = self._errors.read()[-500:].decode("utf-8", "replace").strip()
                self._errors.close()
                self._folder.cleanup()


def _program_limits(limits: BoxLimits) -> ProgramLimits:
    return ProgramLimits(
        memory_bytes=limits.memory_bytes, processes=limits.processes, open_files=limits.open_files
    )


def box_options(container: Container, limits: BoxLimits) -> list[str]:
    """Return the options of a container for a foreign program."""
    own, size = ("/app", HOME), limits.disk_bytes
    mounts = ("--tmpfs", f"{{}}:rw,exec,size={size},mode=1777,uid={USER},gid={USER}")
    if _is_podman(*container.engine):  # else it would show what the image has in these folders
        more = f"tmpfs-size={size},tmpfs-mode=1777,U=true,notmpcopyup"
        mounts = ("--mount", f"type=tmpfs,destination={{}},{more}")
    return [
        *container.bounded(
            _program_limits(limits), ("/tmp", "/var/tmp", "/run"), f"rw,exec,size={size},mode=1777"
        ),
        *(word.format(folder) for folder in own for word in mounts),
        "--workdir", "/app", "--pull", "never",
    ]  # fmt: skip


@functools.lru_cache
def _is_podman(*engine: str) -> bool:
    version = subprocess.run(
        [*engine, "--version"], capture_output=True, text=True, check=False, timeout=START_SECONDS
    )
    return "podman" in version.stdout.lower()


def require_image(container: Container, program: str) -> None:
    """Check that an image works, and has a program. What works is not checked again.

    Raises:
        SandboxError: Its container does not start.
        MissingDependency: It has no such program.
    """
    with _checking:
        _require(tuple(container.engine), container.image, program)


@functools.cache  # of checks that succeed
def _require(engine: tuple[str, ...], image: str, program: str) -> None:
    container = Container(engine=shlex.join(engine), image=image)
    name = f"gem-core-{uuid.uuid4().hex}"
    try:
        command = container.command(name, box_options(container, BoxLimits()), _FIND)
        done = subprocess.run(
            [*command, program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=START_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        container.remove(name)
        raise SandboxError(f"the engine {engine[0]!r} does not work: {error}") from error
    if done.returncode == 3:
        raise MissingDependency(f"the image {image!r} has no program {program!r}")
    if done.returncode:
        what = "" if done.returncode in ENGINE_CODES else "its python3 does not work: "
        raise SandboxError(
            f"a container of the image {image!r} does not start: {what}{done.stderr[-500:].strip()}; build "
            f"or pull it for {engine[0]} first, with Python 3.8 or newer as python3"
        )
