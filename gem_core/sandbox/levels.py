"""Levels of isolation by name, and what this machine allows.

    sandbox = open_sandbox(min_level="namespace", packages=("numpy",))
    result = sandbox.run("print(1 + 1)")
    result.stdout, result.level

| level | what it is |
|---|---|
| ``none`` | in this very process; refused unless asked for by name |
| ``process`` | a process of its own under limits of the kernel |
| ``namespace`` | namespaces of Linux: no host file, no network, no other process |
| ``container`` | Docker or Podman, with an image that has Python |

Without a name `open_sandbox` takes ``namespace`` where `self_check` proves it, else ``process``: a container
takes half a second to start, and has to be asked for.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from gem_core.errors import ConfigError, GemError, SandboxError
from gem_core.sandbox.process import Limits, RunResult


class Sandbox(Protocol):
    """A place to run programs in, at one level; from any thread."""

    @property
    def level(self) -> str:
        """Name of the level."""
        ...

    def run(
        self,
        code: str,
        *,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> RunResult:
        """Run a Python program to its end; what it does is a result, never an exception.

        Args:
            code: Source of the program.
            stdin: What it can read.
            files: Put into its folder before it starts, by their relative path.
            fetch: Files of its folder that come back in `RunResult.files`, where it has written them.
            limits: None for those of the level.
        """
        ...

    def session(self) -> Any:
        """Something with `run` and `close` whose variables stay from one program to the next.

        Raises:
            SandboxError: The level has none.
        """
        ...

    def close(self) -> None:
        """End all that runs."""
        ...


@dataclass(frozen=True)
class Level:
    """What a level is.

    Attributes:
        name: As in `open_sandbox`.
        strength: Greater is stronger, equal is equally strong.
        does_not_block: What gets through, in plain words.
    """

    name: str
    strength: int
    does_not_block: tuple[str, ...]


LEVELS: dict[str, Level] = {
    level.name: level
    for level in (
        Level("none", 0, ("anything: the program is a part of this process, without any limit",)),
        Level("process", 1, (
            "reading and writing the files of this user",
            "the network",
            "signals to other processes of this user, and looking into /proc",
            "a process that leaves its group and outlives the call",
            "filling the disk with many files",
            "a fork bomb where the caller is root; elsewhere the limit counts all processes of the user",
        )),
        Level("namespace", 2, (
            "reading the folder that Python is installed in, the libraries of the system; for a shell its "
            "programs",
            "a fault in the kernel",
            "timing and other side channels",
            "memory up to its limit in each of the allowed processes at the same time",
            "a fork bomb that disturbs programs of the same fork server, where the caller is not root",
        )),
        Level("container", 2, (
            "a fault in the kernel or in the container engine",
            "timing and other side channels",
            "files of the image",
        )),
    )
}  # fmt: skip


class Check(NamedTuple):
    """Whether a level works here."""

    level: str
    available: bool
    reason: str
    """What was proven, or why it is not available."""


_PROOF = """
import os, socket
def tries(call, *arguments):
    try:
        call(*arguments)
        return True
    except OSError:
        return False
def connect():
    with socket.socket() as link:
        link.settimeout(1)
        link.connect(("127.0.0.1", {port}))
seen = tries(open, {path!r}), tries(os.kill, {pid}, 0) and {pid} != 1, tries(connect)
print("proof", *map(int, seen))
"""

_lock = threading.RLock()
_checks: dict[str, Check] = {}
_shared: dict[tuple[Any, ...], Sandbox] = {}


def self_check(*, again: bool = False) -> dict[str, Check]:
    """Try every level on this machine.

    ``namespace`` and ``container`` count as available only when a program in there cannot read a file of
    this machine, signal this process or connect to one of its ports.

    Args:
        again: Try anew; otherwise the first result of the process stays.
    """
    with _lock:
        for name in LEVELS:
            if again or name not in _checks:
                _checks[name] = _check(name)
        return dict(_checks)


def strongest() -> Check:
    """The level that `open_sandbox` takes without a name, and why it is not a stronger one."""
    with _lock:
        if "namespace" not in _checks:
            _checks["namespace"] = _check("namespace")
        check = _checks["namespace"]
    return check if check.available else Check("process", True, check.reason)


def open_sandbox(
    level: str | None = None,
    *,
    min_level: str | None = None,
    packages: Sequence[str] = (),
    workers: int | None = None,
    programs: bool = False,
) -> Sandbox:
    """A sandbox that all callers of this process with the same arguments share.

    Args:
        level: Name of a level. None: ``namespace`` where it works, else ``process``.
        min_level: Refuse what is weaker than this one.
        packages: Distributions that programs can import.
        workers: See the level; None leaves it to it.
        programs: Whether the machine's programs can be run at level ``namespace``; a shell needs them.

    Raises:
        SandboxError: The level is not available here, or weaker than `min_level`.
        ConfigError: No such level.
        MissingDependency: A package is not installed.
    """
    for name in (level, min_level):
        if name is not None and name not in LEVELS:
            raise ConfigError(f"no sandbox level {name!r}; there are: {', '.join(LEVELS)}")
    with _lock:
        reason = ""
        if level is None:
            level, _, why = strongest()
            reason = f" ({why})" if level == "process" else ""
        if min_level is not None and LEVELS[level].strength < LEVELS[min_level].strength:
            raise SandboxError(
                f"min_level={min_level!r}, but only level {level!r} is available or asked for{reason}"
            )
        key = (level, tuple(packages), workers, programs, os.getpid())
        if key not in _shared:
            _shared[key] = _make(level, packages, workers, programs)
        return _shared[key]


def close_sandboxes() -> None:
    """Close those that `open_sandbox` has made; the next call makes new ones."""
    with _lock:
        made = [sandbox for key, sandbox in _shared.items() if key[-1] == os.getpid()]
        _shared.clear()
    for sandbox in made:
        sandbox.close()


def _make(level: str, packages: Sequence[str], workers: int | None, programs: bool = False) -> Sandbox:
    # A level is imported when it is used: `namespace` exists on Linux only.
    if level == "namespace":
        from gem_core.sandbox.namespace import Namespace

        return Namespace(packages=packages, workers=workers, programs=programs)
    if level == "container":
        from gem_core.sandbox.container import Container

        return Container()
    from gem_core.sandbox.local import InProcess, Process

    return InProcess() if level == "none" else Process(packages=bool(packages))


def _check(name: str) -> Check:
    if name == "none":
        return Check(name, True, "no isolation; only when asked for by name")
    try:
        sandbox = _make(name, (), 1)
    except (GemError, OSError) as error:
        return Check(name, False, str(error))
    try:
        with tempfile.NamedTemporaryFile() as file, socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            result = sandbox.run(_PROOF.format(path=file.name, pid=os.getpid(), port=port))
    finally:
        sandbox.close()
    if result.ending != "ok" or not result.stdout.startswith("proof"):
        return Check(name, False, f"a program did not run: {result.stderr.strip()[-300:]}")
    if name == "process":
        return Check(name, True, "limits of the kernel; files and network are open")
    if result.stdout.split() != ["proof", "0", "0", "0"]:
        return Check(name, False, f"a program can get out (file, signal, port: {result.stdout.strip()})")
    return Check(name, True, "no file, no process and no port of this machine can be reached")


def _forget() -> None:
    """In a forked child: what is shared belongs to the parent."""
    global _lock
    _lock = threading.RLock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget)
