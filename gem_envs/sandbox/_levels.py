"""Isolation levels by name, and which of them this machine supports.

    sandbox = open_sandbox(min_level="namespace", packages=("numpy",))
    result = sandbox.run("print(1 + 1)")
    result.stdout, result.level

| level | isolation |
|---|---|
| ``none`` | runs in this process; must be requested by name |
| ``process`` | a separate process under limits of the kernel |
| ``namespace`` | Linux namespaces: no host files, no network, no other processes |
| ``container`` | Docker or Podman, with an image that has Python |

By default `open_sandbox` uses ``namespace`` if `self_check` proves that it works, and ``process`` otherwise.
A container takes half a second to start, so it must be requested by name.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from gem_core._util.checks import check_names
from gem_core._util.forks import after_fork
from gem_core._util.places import Attempts
from gem_core.errors import GemError, SandboxError
from gem_envs.sandbox._program import Program, Sandbox


@dataclass(frozen=True)
class IsolationLevel:
    """Properties of an isolation level.

    Attributes:
        name: Name for `open_sandbox`.
        strength: Higher is stronger; equal numbers are equally strong.
        isolates: Whether the level blocks an attacker, and not just accidents.
        does_not_block: Attacks that the level does not block, in plain words.
    """

    name: str
    strength: int
    isolates: bool
    does_not_block: tuple[str, ...]


LEVELS: dict[str, IsolationLevel] = {
    level.name: level
    for level in (
        IsolationLevel("none", 0, False, (
            "anything: the program is a part of this process, without any limit",
        )),
        IsolationLevel("process", 1, False, (
            "reading and writing the files of this user",
            "the network",
            "signals to other processes of this user, and reading /proc",
            "a process that leaves its group and outlives the call",
            "filling the disk with many files",
            "a fork bomb if the caller is root; otherwise the limit counts all processes of the user",
        )),
        IsolationLevel("namespace", 2, True, (
            "reading Python's installation folder and the system's libraries; for a shell, also its programs",
            "a vulnerability of the kernel",
            "timing and other side channels",
            "memory use up to the limit in each of the allowed processes at the same time, and as much again "
            "by the kernel for page tables, full pipes and sockets, and file locks",
            "kernel memory that no limit counts, if there is no filter of system calls",
            "a fork bomb that disturbs programs of the same fork server, if the caller is not root",
        )),
        IsolationLevel("container", 2, True, (
            "a vulnerability of the kernel or the container engine",
            "timing and other side channels",
            "reading the files of the image",
            "memory use by many small files or shared memory, if the engine cannot limit a whole container",
            "anything inside a container whose commands may change the whole image",
        )),
    )
}  # fmt: skip


class LevelCheck(NamedTuple):
    """Whether an isolation level works on this machine."""

    level: str
    available: bool
    reason: str
    """What the test proved, or why the level is not available."""


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
escapes = tries(open, {path!r}), tries(os.kill, {pid}, 0) and {pid} != 1, tries(connect)
print("proof", *map(int, escapes))
"""

_Key: TypeAlias = tuple[Any, ...]

_checks: dict[str, LevelCheck] = {}
_checking = Attempts()
_shared: dict[_Key, Sandbox] = {}
_starts: dict[_Key, Attempts] = {}


def self_check(*, again: bool = False) -> dict[str, LevelCheck]:
    """Test every isolation level on this machine.

    ``namespace`` and ``container`` count as available only if a program inside cannot read a file of this
    machine, signal this process, or connect to a local port.

    Args:
        again: Whether to repeat tests that this process has already made.
    """
    with _checking.one():
        for name in LEVELS:
            if again or name not in _checks:
                _checks[name] = _check(name)
        return dict(_checks)


def strongest() -> LevelCheck:
    """Return the level that `open_sandbox` uses by default, and why it is not a stronger one."""
    if "namespace" not in _checks:
        with _checking.one():
            if "namespace" not in _checks:
                _checks["namespace"] = _check("namespace")
    check = _checks["namespace"]
    return check if check.available else LevelCheck("process", True, check.reason)


@contextlib.contextmanager
def weak_programs_held() -> Iterator[list[Program]]:
    """On a machine without level ``namespace``, run no program at level ``process`` while the block runs.

    Each such program of this process fails instead. The package's own programs, such as those that compare
    formulas, still run.

    Yields:
        The programs held back so far.
    """
    from gem_envs.sandbox._process import programs_held

    with programs_held(lambda: strongest().level == "process") as held:
        yield held


def open_sandbox(
    level: str | None = None,
    *,
    min_level: str | None = None,
    packages: Sequence[str] = (),
    workers: int | None = None,
    programs: bool = False,
) -> Sandbox:
    """Return a sandbox, shared by all callers in this process that pass the same arguments.

    Args:
        level: Name of the level. None uses ``namespace`` if it works, and ``process`` otherwise.
        min_level: Name of the weakest acceptable level. None accepts any level.
        packages: Distributions that programs can import.
        workers: Number of fork servers at level ``namespace``. None uses one per core.
        programs: Whether the machine's programs can be run at level ``namespace``, as a shell requires.

    Raises:
        SandboxError: The level is not available on this machine, or is weaker than `min_level`.
        ConfigError: The level is unknown.
        MissingDependency: A package is not installed.
    """
    check_names((name for name in (level, min_level) if name is not None), LEVELS, kind="sandbox level")
    reason = ""
    if level is None:
        level, _, why = strongest()
        reason = f" ({why})" if level == "process" else ""
    if min_level is not None and LEVELS[level].strength < LEVELS[min_level].strength:
        raise SandboxError(
            f"min_level={min_level!r}, but only level {level!r} is requested or available{reason}"
        )
    key = (level, tuple(packages), workers, programs)
    sandbox = _shared.get(key)
    if sandbox is None:
        with _starts.setdefault(key, Attempts()).one():
            sandbox = _shared.get(key)
            if sandbox is None:
                sandbox = _shared[key] = _make(level, packages, workers, programs)
    return sandbox


def close_sandboxes() -> None:
    """Close every sandbox that `open_sandbox` returned; the next call creates new ones."""
    while _shared:
        _shared.popitem()[1].close()


def _make(level: str, packages: Sequence[str], workers: int | None, programs: bool = False) -> Sandbox:
    # Levels are imported on first use, because `namespace` exists on Linux only.
    if level == "namespace":
        from gem_envs.sandbox._namespace import Namespace

        return Namespace(packages=packages, workers=workers, programs=programs)
    if level == "container":
        from gem_envs.sandbox._container import Container

        return Container()
    from gem_envs.sandbox._in_process import InProcess
    from gem_envs.sandbox._process import Process

    return InProcess() if level == "none" else Process(packages=bool(packages))


def _check(name: str) -> LevelCheck:
    if name == "none":
        return LevelCheck(name, True, "no isolation; must be requested by name")
    try:
        sandbox = _make(name, (), 1)
    except (GemError, OSError) as error:
        return LevelCheck(name, False, str(error))
    try:
        with tempfile.NamedTemporaryFile() as file, socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            result = sandbox.run(_PROOF.format(path=file.name, pid=os.getpid(), port=port))
    finally:
        sandbox.close()
    if result.ending != "ok" or not result.stdout.startswith("proof"):
        return LevelCheck(name, False, f"a test program did not run: {result.stderr.strip()[-300:]}")
    if name == "process":
        return LevelCheck(name, True, "limits of the kernel only; files and the network are accessible")
    if result.stdout.split() != ["proof", "0", "0", "0"]:
        return LevelCheck(name, False, f"a program can escape (file, signal, port: {result.stdout.strip()})")
    reason = "no file, process, or port of this machine can be reached"
    return LevelCheck(name, True, f"{reason}; {sandbox.about}" if sandbox.about else reason)


after_fork(_shared.clear)  # they belong to the parent
