"""Level ``container``: each program in its own Podman or Docker container, removed afterwards.

In addition to the limits of level `process`, the level enforces: no files except the image's, read-only, and
folders in memory of limited size; no network; no capabilities; an unprivileged user; none of the system calls
in `guest.denied`; nothing outlives the container. If the engine can count a container's memory and processes,
the container as a whole has limits too. A start takes about half a second.

A program has the same user as the guest that runs it, which therefore cannot be read through ``/proc``; see
`conversation` for what the host accepts as an answer.

The image needs Python 3.8 or newer as ``python3``. It is named by the argument `image` or by the environment
variable ``GEM_CORE_SANDBOX_IMAGE``.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from gem_core.errors import SandboxError
from gem_envs.sandbox._conversation import ENGINE_CODES, START_SECONDS, ContainerConversation
from gem_envs.sandbox._guest.denied import ABSENT, CONDITIONAL, DENIED
from gem_envs.sandbox._limits import ProgramLimits
from gem_envs.sandbox._program import Program, Sandbox, cores, program_places
from gem_envs.sandbox._result import RunResult, ending_of, head
from gem_envs.sandbox._workspace import relative

LEVEL = "container"
_ALWAYS = (
    "--rm",  # also if this process is killed
    "--interactive", "--network", "none", "--security-opt", "no-new-privileges",
    "--entrypoint", "",  # the image's own would get the guest as its arguments
    "--init=false",  # another process 1 would hold the streams of the guest, within reach of the program
)  # fmt: skip
_TIMES_MEMORY = 4
"""Memory of a whole container, as a multiple of the memory of each of its processes."""
_LEAST_MEMORY = 64 * 2**20
"""What the interpreter of the guest needs, in bytes."""
_PROCESSES = 4096
_PROFILE = "profile.json"
USER = 65534
"""Id of the user in a container, which most images call nobody."""
_QUEUED_SIGNALS = 256
_GUEST = Path(__file__).with_name("_guest") / "container.py"
_places = program_places(cores())


class Container(Sandbox):
    """Runs programs at level `container`; safe to use from any thread.

    At most four programs per core run at a time; others wait.

    Args:
        image: Name of an image on this machine. None uses GEM_CORE_SANDBOX_IMAGE.
        engine: Command of the engine, including options, such as ``"podman --runtime runc"``. None uses
            GEM_CORE_SANDBOX_ENGINE, or else podman or docker.
        disk_bytes: Size of the writable folder, in bytes.

    Attributes:
        engine: Words of the engine's command.
        image: Name of the image.

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
        self.engine, self.image, self._disk = shlex.split(engine), image, disk_bytes

    @cached_property
    def _folder(self) -> str:
        """Folder in which the engine is called, with the filter of system calls."""
        folder = tempfile.mkdtemp(prefix="gem-sandbox-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        Path(folder, _PROFILE).write_text(json.dumps(_profile()), encoding="utf-8")
        return folder

    def run_program(self, program: Program) -> RunResult:
        with _places.held():
            return self._run_program(program)

    def _run_program(self, program: Program) -> RunResult:
        limits = program.limits
        name = f"gem-core-{uuid.uuid4().hex}"
        code = _GUEST.read_text(encoding="utf-8")
        start = time.perf_counter()
        talk = self._talk(name, self._options(limits), code)
        try:
            answer = talk.exchange(
                _request(program, self.inside(limits)), START_SECONDS + limits.wall_seconds, _most(program)
            )
        finally:
            stderr = talk.end()
        seconds = time.perf_counter() - start
        if answer is not None:
            return _result(answer, program, seconds)
        if talk.timed_out:
            return RunResult("", "", "timeout", -9, seconds, False, LEVEL, wall=True)
        if talk.exit_code in ENGINE_CODES:
            raise SandboxError(f"the container did not start: {stderr[-500:]}")
        return RunResult("", stderr[-500:], "killed", -9, seconds, False, LEVEL)

    def start(self, source: Path, limits: ProgramLimits, whole_image: bool = False) -> ContainerConversation:
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
                *_ALWAYS, *self._whole(limits.memory_bytes, 1024),
                "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096",
            ]  # fmt: skip
        return self._talk(name, options, f"{source.read_text(encoding='utf-8')}\nserve()\n")

    def _talk(self, name: str, options: list[str], code: str) -> ContainerConversation:
        return ContainerConversation(
            self.command(name, options, code), self._folder, lambda: self.remove(name)
        )

    def command(self, name: str, options: list[str], code: str) -> list[str]:
        """Return the command that starts a container with a program of Python."""
        return [*self.engine, "run", "--name", name, *options, self.image, "python3", "-I", "-c", code]

    def close(self) -> None:
        """Do nothing, because nothing persists between programs."""

    @property
    def about(self) -> str:  # type: ignore[override]  # known once the engine was asked
        """Whether the engine can limit a container as a whole."""
        can = "limits" if self._counts() else "cannot limit"
        return f"the engine {can} the memory and processes of a whole container"

    def inside(self, limits: ProgramLimits) -> ProgramLimits:
        """Return the limits that apply inside the container.

        The kernel's own limit of processes counts those of all containers together. Where the engine counts
        those of each container, that limit is out of the way.
        """
        return replace(limits, processes=max(_PROCESSES, limits.processes)) if self._counts() else limits

    def _counts(self) -> bool:
        return _counts(tuple(self.engine), self.image)

    def _whole(self, memory_bytes: int, processes: int) -> list[str]:
        return _whole(_TIMES_MEMORY * memory_bytes, processes) if self._counts() else []

    def _options(self, limits: ProgramLimits) -> list[str]:
        # Podman makes some of these folders itself, and lets each grow to half of the machine's memory.
        folders = ("/program", "/tmp", "/var/tmp", "/run")
        return [
            *self.bounded(limits, folders, f"rw,size={self._disk},mode=1777"),
            "--security-opt", f"seccomp={Path(self._folder, _PROFILE)}", "--workdir", "/program",
        ]  # fmt: skip

    def bounded(self, limits: ProgramLimits, folders: Iterable[str], mount: str) -> list[str]:
        """Return the options of a container whose user has no rights, with folders in memory."""
        open_files, processes = max(64, limits.open_files), self.inside(limits).processes + 8
        mounts = [word for folder in folders for word in ("--tmpfs", f"{folder}:{mount}")]
        return [
            *_ALWAYS, *self._whole(limits.memory_bytes, limits.processes + 8),
            "--read-only", "--cap-drop", "ALL", "--user", f"{USER}:{USER}", *mounts,
            "--ulimit", f"nofile={open_files}:{open_files}", "--ulimit", f"nproc={processes}:{processes}",
            "--ulimit", f"sigpending={_QUEUED_SIGNALS}:{_QUEUED_SIGNALS}", "--ulimit", "msgqueue=0:0",
        ]  # fmt: skip

    def remove(self, name: str) -> None:
        """Remove a container, which may run or be gone."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*self.engine, "rm", "--force", name], capture_output=True, check=False, timeout=30
            )


def _whole(memory_bytes: int, processes: int) -> list[str]:
    """Return the options that limit a container as a whole."""
    return ["--memory", str(max(memory_bytes, _LEAST_MEMORY)), "--pids-limit", str(processes)]


@lru_cache
def _counts(engine: tuple[str, ...], image: str) -> bool:
    """Return whether a container starts with these limits: without control groups, an engine refuses them."""
    command = [*engine, "run", *_ALWAYS, "--ulimit", "nofile=64:64", "--ulimit", "nproc=64:64"]
    command += [*_whole(_LEAST_MEMORY, 64), image, "python3", "-I", "-S", "-c", "pass"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            check=False, timeout=START_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _profile() -> dict[str, Any]:
    """Return the filter of system calls as a seccomp profile of container engines."""
    denials: list[dict[str, Any]] = [
        {"names": [name for name, *_ in rows], "action": "SCMP_ACT_ERRNO", "errnoRet": number}
        for rows, number in ((DENIED, errno.EPERM), (ABSENT, errno.ENOSYS))
    ]
    for rule in CONDITIONAL:
        # A profile has no test of any bit of a mask, so there is a denial for each bit.
        index, how, mask = rule.tests[0]
        bits = [1 << bit for bit in range(32) if how == "any" and mask >> bit & 1]
        each = [[_argument(index, "all", bit)] for bit in bits]
        denials.extend(
            {"names": [rule.name], "action": "SCMP_ACT_ERRNO", "args": arguments}
            for arguments in each or [[_argument(*test) for test in rule.tests]]
        )
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": denials}


def _argument(index: int, how: str, value: int) -> dict[str, Any]:
    """Return a test of one argument; of an int, the kernel reads the lower half of the 64 bits."""
    if how in ("all", "is"):
        mask = value if how == "all" else 0xFFFFFFFF
        return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
    return {"index": index, "value": value, "op": {"not": "SCMP_CMP_NE", "above": "SCMP_CMP_GT"}[how]}


def _request(program: Program, limits: ProgramLimits) -> dict[str, Any]:
    code, stdin = program.encoded()

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


def _most(program: Program) -> int:
    """Return the length of the longest answer, in bytes."""
    limits = program.limits
    data = 2 * (limits.output_bytes + 1) + len(program.fetch) * limits.file_bytes
    names = sum(len(json.dumps(name)) for name in program.fetch)
    return data * 4 // 3 + names + 2**12 + 16 * len(program.fetch)


def _result(answer: dict[str, Any], program: Program, seconds: float) -> RunResult:
    limits = program.limits
    try:
        out, err = (base64.b64decode(answer[name], validate=True) for name in ("out", "err"))
        exit_code, timed_out = int(answer["exit"]), bool(answer["timed_out"])
        asked = {name: answer["files"][name] for name in program.fetch if name in answer["files"]}
        files = {name: base64.b64decode(data, validate=True) for name, data in asked.items()}
    except (ValueError, KeyError, TypeError, OverflowError):
        return RunResult("", "the answer cannot be read", "killed", -9, seconds, False, LEVEL)
    stdout, more_out = head(out, limits.output_bytes)
    stderr, more_err = head(err, limits.output_bytes)
    ending = ending_of(exit_code, timed_out=timed_out)
    cut = more_out or more_err
    return RunResult(stdout, stderr, ending, exit_code, seconds, cut, LEVEL, files, timed_out)
