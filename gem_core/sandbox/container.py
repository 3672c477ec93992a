"""Level ``container``: each program in a container of Podman or Docker that is thrown away afterwards.

What holds here, besides the limits of level `process`: the files are those of the image, read-only, and one
folder in memory; no network; no capability; a user without rights; none of the kernel calls in `_denied`;
nothing outlives the container. A start takes about half a second.

The image needs Python 3.8 or newer as ``python3`` and comes from the argument or from the environment
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import SandboxError
from gem_core.sandbox._denied import DENIED, NEW_NAMESPACES
from gem_core.sandbox.files import relative
from gem_core.sandbox.process import ISOLATED, Ending, Limits, RunResult

LEVEL = "container"
_START_SECONDS = 60.0
_END_SECONDS = 2.0
_INSIDE = Path(__file__).with_name("_contained.py")


class Container:
    """Programs at level `container`; from any thread.

    Args:
        image: Name of an image on this machine. None takes GEM_CORE_SANDBOX_IMAGE.
        engine: Command of the engine, options included, such as ``"podman --runtime runc"``. None takes
            GEM_CORE_SANDBOX_ENGINE, else podman or docker.
        disk_bytes: Size of the folder that a program can write in.

    Raises:
        SandboxError: There is no engine, or no image is named.
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

    def run(
        self,
        code: str,
        *,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> RunResult:
        """See `levels.Sandbox.run`.

        Raises:
            SandboxError: The engine did not start the container.
        """
        limits = limits or ISOLATED
        request = _request(code, stdin, files or {}, fetch, limits)
        name = f"gem-core-{uuid.uuid4().hex}"
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [*self._engine, "run", "--name", name, *self._options(limits), self._image,
                 "python3", "-I", "-c", _INSIDE.read_text(encoding="utf-8")],
                input=json.dumps(request).encode() + b"\n", capture_output=True, check=False,
                timeout=_START_SECONDS + limits.wall_seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return RunResult("", "", "timeout", -9, time.perf_counter() - start, False, LEVEL)
        except OSError as error:
            raise SandboxError(f"{self._engine[0]} cannot be run: {error}") from error
        finally:
            self._remove(name)
        return _result(done, limits, time.perf_counter() - start)

    def session(self) -> Any:
        """Not at this level.

        Raises:
            SandboxError: Always.
        """
        raise SandboxError("level 'container' has no sessions; use level 'namespace' or stateful=False")

    def start(self, source: Path, limits: Limits, whole_image: bool = False) -> Conversation:
        """Start a container that answers requests, one line of JSON each, as `source` does with ``serve()``.

        Args:
            source: Of the program inside.
            limits: Of processes and open files.
            whole_image: The image can be changed, under the defaults of the engine, without a network.

        Raises:
            SandboxError: The engine cannot be run.
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
            raise SandboxError(f"{self._engine[0]} cannot be run: {error}") from error
        return Conversation(process, lambda: self._remove(name))

    def close(self) -> None:
        """Nothing stays between two programs."""

    def _options(self, limits: Limits) -> list[str]:
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
    """Requests to a container that stays, and its answers."""

    def __init__(self, process: subprocess.Popen[bytes], remove: Callable[[], None]) -> None:
        self._process, self._begun = process, False
        self._end = weakref.finalize(self, _end_container, process, remove)

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None when there is none in time, and never again.

        Raises:
            SandboxError: The container does not start.
        """
        end = time.monotonic() + seconds + (0 if self._begun else _START_SECONDS)
        line = self._exchange(json.dumps(request).encode() + b"\n", end)
        if line is None:
            said = b"" if self._begun else self._last_words()
            self.close()
            if not self._begun:
                told = (
                    said.decode("utf-8", "replace").strip()[-500:] or "does the image have bash and python3?"
                )
                raise SandboxError(f"the container did not start: {told}")
            return None
        self._begun = True
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Remove the container. May be called more than once."""
        self._end()

    def _last_words(self) -> bytes:
        self._process.kill()
        return b"" if self._process.stderr is None else self._process.stderr.read()

    def _exchange(self, data: bytes, end: float) -> bytes | None:
        give, take = self._process.stdin, self._process.stdout
        assert give is not None
        assert take is not None
        try:
            give.write(data)
            give.flush()
        except (OSError, ValueError):  # it has gone
            return None
        found = b""
        while not found.endswith(b"\n"):
            if not select.select([take], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            part = os.read(take.fileno(), 2**16)
            if not part:
                return None
            found += part
        return found


def _end_container(process: subprocess.Popen[bytes], remove: Callable[[], None]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # the program inside ends when it sees that
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    remove()
    process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _profile() -> dict[str, Any]:
    """The filter of kernel calls, in the form of container engines."""
    no_such_call = 38  # libc takes clone then, whose flags a filter can see
    flags = [1 << bit for bit in range(32) if NEW_NAMESPACES >> bit & 1]
    refused: list[dict[str, Any]] = [
        {"names": [name for name, *_ in DENIED], "action": "SCMP_ACT_ERRNO"},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": no_such_call},
    ]
    for flag in flags:
        masked = {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}
        refused.append({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [masked]})
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": refused}


def _request(
    code: str, stdin: str, files: Mapping[str, bytes], fetch: Sequence[str], limits: Limits
) -> dict[str, Any]:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "code": text(code.encode("utf-8", "surrogatepass")),
        "in": text(stdin.encode("utf-8", "surrogatepass")),
        "files": {relative(name): text(data) for name, data in files.items()},
        "fetch": [relative(name) for name in fetch],
        "seconds": limits.wall_seconds,
        "output_bytes": limits.output_bytes,
        "limits": [
            max(1, -int(-limits.cpu_seconds // 1)), limits.memory_bytes, limits.file_bytes, limits.processes,
            limits.open_files,
        ],
        "env": {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": "/program", "TMPDIR": "/program"},
    }  # fmt: skip


def _result(done: subprocess.CompletedProcess[bytes], limits: Limits, seconds: float) -> RunResult:
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
        out, err = base64.b64decode(answer["out"]), base64.b64decode(answer["err"])
        exit_code, timed_out = int(answer["exit"]), bool(answer["timed_out"])
        files = {str(name): base64.b64decode(data) for name, data in answer["files"].items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        said = done.stderr.decode("utf-8", "replace").strip()[-500:]
        if done.returncode in (125, 126, 127):  # the engine's own codes
            raise SandboxError(f"the container did not start: {said}") from None
        return RunResult("", said, "killed", -9, seconds, False, LEVEL)
    ending: Ending = "failed" if exit_code else "ok"
    if timed_out or exit_code == -24:
        ending = "timeout"
    elif exit_code < 0:
        ending = "killed"
    most = limits.output_bytes
    shown = (out[:most].decode("utf-8", "replace"), err[:most].decode("utf-8", "replace"))
    return RunResult(*shown, ending, exit_code, seconds, len(out) > most or len(err) > most, LEVEL, files)
