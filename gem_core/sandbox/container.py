"""Level ``container``: each program in its own Podman or Docker container, removed afterwards.

In addition to the limits of level `process`, the level enforces: no files except the image's, read-only, and
one writable folder in memory; no network; no capabilities; an unprivileged user; none of the system calls in
`guest.denied`; nothing outlives the container. A start takes about half a second.

The image needs Python 3.8 or newer as ``python3``. It is named by the argument `image` or by the environment
variable ``GEM_CORE_SANDBOX_IMAGE``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gem_core.errors import SandboxError
from gem_core.sandbox.guest.denied import DENIED, NEW_NAMESPACES
from gem_core.sandbox.limits import ProgramLimits
from gem_core.sandbox.program import Program, Sandbox
from gem_core.sandbox.result import RunResult, ending_of, head
from gem_core.sandbox.workspace import relative

LEVEL = "container"
_START_SECONDS = 60.0
_END_SECONDS = 2.0
_GUEST = Path(__file__).with_name("guest") / "container.py"


class Container(Sandbox):
    """Runs programs at level `container`; safe to use from any thread.

    Args:
        image: Name of an image on this machine. None uses GEM_CORE_SANDBOX_IMAGE.
        engine: Command of the engine, including options, such as ``"podman --runtime runc"``. None uses
            GEM_CORE_SANDBOX_ENGINE, or else podman or docker.
        disk_bytes: Size of the writable folder, in bytes.

    Raises:
        SandboxError: No engine is installed, or no image is named.
    """

    level = LEVEL

    def __init__(
        self, *, image: str | None = None, engine: str | None = None, disk_bytes: int = 64 * 2**20
    ) -> None:
        image = image or os.environ.get("GEM_CORE_SANDBOX_IMAGE")
        engine = engine or os.environ.get("GEM_CORE_SANDBOX_ENGINE")
        if engine is None:
            engine = next((name for name in ("podman", "docker") if shutil.which(name)), None)
        if engine is None:
            raise SandboxError("level 'container' needs podman or docker, and neither is on PATH")
        if not image:
            raise SandboxError(
                "level 'container' needs an image: set GEM_CORE_SANDBOX_IMAGE to one with python3"
            )
        self._engine, self._image, self._disk = shlex.split(engine), image, disk_bytes
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as profile:
            json.dump(_profile(), profile)
        self._profile = profile.name
        weakref.finalize(self, Path(self._profile).unlink, missing_ok=True)

    def run_program(self, program: Program) -> RunResult:
        limits = program.limits
        request = _request(program)
        name = f"gem-core-{uuid.uuid4().hex}"
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [*self._engine, "run", "--name", name, *self._options(limits), self._image,
                 "python3", "-I", "-c", _GUEST.read_text(encoding="utf-8")],
                input=json.dumps(request).encode() + b"\n", capture_output=True, check=False,
                timeout=_START_SECONDS + limits.wall_seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return RunResult("", "", "timeout", -9, time.perf_counter() - start, False, LEVEL, wall=True)
        except OSError as error:
            raise SandboxError(f"{self._engine[0]} cannot be started: {error}") from error
        finally:
            self._remove(name)
        return _result(done, limits, time.perf_counter() - start)

    def start(self, source: Path, limits: ProgramLimits, whole_image: bool = False) -> Conversation:
        """Start a container whose program answers requests, each one line of JSON.

        Args:
            source: File of the program to run inside; it must define ``serve()``.
            limits: Limits of processes and open files; the others do not apply.
            whole_image: Whether the program may change the whole image. The engine's defaults then replace
                the stricter limits of this level, still without a network.

        Raises:
            SandboxError: The engine cannot be started.
        """
        name = f"gem-core-{uuid.uuid4().hex}"
        options = [*self._options(limits), "--tmpfs", f"/app:rw,exec,size={self._disk},mode=1777"]
        if whole_image:
            options = [
                "--interactive", "--network", "none", "--security-opt", "no-new-privileges",
                "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096",
            ]  # fmt: skip
        code = f"{source.read_text(encoding='utf-8')}\nserve()\n"
        command = [*self._engine, "run", "--name", name, *options, self._image, "python3", "-I", "-c", code]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise SandboxError(f"{self._engine[0]} cannot be started: {error}") from error
        return Conversation(process, lambda: self._remove(name))

    def close(self) -> None:
        """Do nothing, because nothing persists between programs."""

    def _options(self, limits: ProgramLimits) -> list[str]:
        open_files, processes = max(64, limits.open_files), limits.processes + 8
        return [
            "--interactive", "--network", "none", "--read-only", "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--security-opt", f"seccomp={self._profile}",
            "--user", "65534:65534",
            "--tmpfs", f"/program:rw,size={self._disk},mode=1777", "--workdir", "/program",
            "--ulimit", f"nofile={open_files}:{open_files}", "--ulimit", f"nproc={processes}:{processes}",
        ]  # fmt: skip

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*self._engine, "rm", "--force", name], capture_output=True, check=False, timeout=30
            )


class Conversation:
    """Exchange of requests and answers with a running container."""

    def __init__(self, process: subprocess.Popen[bytes], remove: Callable[[], None]) -> None:
        self._process, self._begun = process, False
        self._end = weakref.finalize(self, _end_container, process, remove)

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """Return the answer to a request; None if it does not arrive in time, which ends the container.

        Raises:
            SandboxError: The container did not start.
        """
        end = time.monotonic() + seconds + (0 if self._begun else _START_SECONDS)
        line = self._exchange(json.dumps(request).encode() + b"\n", end)
        if line is None:
            stderr = b"" if self._begun else self._kill_and_read_stderr()
            self.close()
            if not self._begun:
                message = stderr.decode("utf-8", "replace").strip()[-500:]
                raise SandboxError(
                    f"the container did not start: {message or 'does the image have bash and python3?'}"
                )
            return None
        self._begun = True
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Remove the container. May be called more than once."""
        self._end()

    def _kill_and_read_stderr(self) -> bytes:
        self._process.kill()
        return b"" if self._process.stderr is None else self._process.stderr.read()

    def _exchange(self, data: bytes, end: float) -> bytes | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(data)
            stdin.flush()
        except (OSError, ValueError):  # the container has ended
            return None
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            part = os.read(stdout.fileno(), 2**16)
            if not part:
                return None
            line += part
        return line


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


def _profile() -> dict[str, Any]:
    """Return the filter of system calls as a seccomp profile of container engines."""
    no_such_call = 38  # libc falls back to clone, whose flags a filter can see
    flags = [1 << bit for bit in range(32) if NEW_NAMESPACES >> bit & 1]
    denials: list[dict[str, Any]] = [
        {"names": [name for name, *_ in DENIED], "action": "SCMP_ACT_ERRNO"},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": no_such_call},
    ]
    for flag in flags:
        masked = {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}
        denials.append({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [masked]})
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": denials}


def _request(program: Program) -> dict[str, Any]:
    limits, (code, stdin) = program.limits, program.encoded()

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "code": text(code),
        "in": text(stdin),
        "files": {relative(name): text(data) for name, data in program.files.items()},
        "fetch": [relative(name) for name in program.fetch],
        "seconds": limits.wall_seconds,
        "output_bytes": limits.output_bytes,
        "limits": limits.kernel_limits(),
        "env": {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": "/program", "TMPDIR": "/program"},
    }  # fmt: skip


def _result(done: subprocess.CompletedProcess[bytes], limits: ProgramLimits, seconds: float) -> RunResult:
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
        out, err = base64.b64decode(answer["out"]), base64.b64decode(answer["err"])
        exit_code, timed_out = int(answer["exit"]), bool(answer["timed_out"])
        files = {str(name): base64.b64decode(data) for name, data in answer["files"].items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        stderr = done.stderr.decode("utf-8", "replace").strip()[-500:]
        if done.returncode in (125, 126, 127):  # the engine's own codes
            raise SandboxError(f"the container did not start: {stderr}") from None
        return RunResult("", stderr, "killed", -9, seconds, False, LEVEL)
    stdout, more_out = head(out, limits.output_bytes)
    stderr, more_err = head(err, limits.output_bytes)
    ending = ending_of(exit_code, timed_out=timed_out)
    cut = more_out or more_err
    return RunResult(stdout, stderr, ending, exit_code, seconds, cut, LEVEL, files, timed_out)
