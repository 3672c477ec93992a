"""Snapshot of the state that running code could change on this machine, for comparison and restoration."""

from __future__ import annotations

import operator
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from secrets import token_hex
from types import ModuleType
from typing import Any

from gem_envs._working_directory import WorkingDirectory

_WATCHED = frozenset(
    (
        "ast", "builtins", "decimal", "fractions", "json", "math", "numpy", "operator", "os", "pickle",
        "posixpath", "random", "re", "string", "subprocess", "sympy", "sys", "time",
    )
)  # fmt: skip
_PACKAGES = ("gem_core", "gem_chat", "gem_envs", "gem_bridges", "gem_lab", "reasoning_gym")
_GONE = object()
_GRACE = 1.0
"""Seconds that a terminating process may take to disappear."""
_SPIN = 0.2


class ProcessSnapshot:
    """Snapshot of this process and its machine.

    It covers the attributes of modules of the standard library (`builtins`, `sys`, `os`, and others), numpy,
    gem_core, reasoning-gym, and the requested modules, and of the classes that these define; the environment
    variables; the working directory; a folder for files; and the processes with `token` in their command
    line, which the package's own workers never have.

    Attributes:
        folder: Empty folder for files.
        token: Text that occurs nowhere else.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        """Take the snapshot.

        Args:
            modules: Names of further modules to cover.
        """
        self.token = f"gem-core-attack-{token_hex(8)}"
        self._temporary = tempfile.TemporaryDirectory(prefix="gem-core-attack-")
        self.folder = Path(self._temporary.name)
        own = set(modules)
        Random("")  # since Python 3.13, the first text that seeds a generator changes the module
        self._places: list[tuple[str, Any, dict[str, Any]]] = []
        for name, module in list(sys.modules.items()):
            if isinstance(module, ModuleType) and (
                name in _WATCHED or name in own or name.partition(".")[0] in _PACKAGES
            ):
                self._places.append((name, module, dict(vars(module))))
                self._places += [
                    (f"{name}.{kind.__name__}", kind, dict(vars(kind)))
                    for kind in list(vars(module).values())
                    if isinstance(kind, type) and kind.__module__ == name and name not in _WATCHED
                ]
        self._environ = dict(os.environ)
        self._directory = WorkingDirectory()
        self._old_processes = _process_ids()

    def changes(self) -> list[str]:
        """Return descriptions of the changes; new processes get a second to end before they count.

        A fork of this process gets the same time to start its program.
        """
        messages = [f"it wrote the file {path.name!r}" for path in sorted(self.folder.iterdir())]
        messages += [f"{name}.{key} changed" for name, _, key, _ in self._changed()]
        names = {*self._environ, *os.environ} - _OWN_VARIABLES
        messages += [
            f"the environment variable {name} changed"
            for name in sorted(names)
            if self._environ.get(name) != os.environ.get(name)
        ]
        if not self._directory.is_current():
            messages.append(f"the working directory changed to {_working_directory()}")
        end = time.monotonic() + _GRACE
        while ((started := self._processes()) or self._forks()) and time.monotonic() < end:
            time.sleep(0.02)
        return messages + [f"process {pid} is still running" for pid in started]

    def restore(self) -> None:
        """Undo the changes, and delete the folder."""
        for _, place, key, before in self._changed():
            if before is _GONE:
                delattr(place, key)
            else:
                setattr(place, key, before)
        os.environ.clear()
        os.environ.update(self._environ)
        self._directory.go_back()
        self._directory.close()
        for pid in self._processes():
            with suppress(ProcessLookupError, ChildProcessError):  # it has ended or is a child of a worker
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self._temporary.cleanup()

    def _changed(self) -> list[tuple[str, Any, str, Any]]:
        """Return name, module or class, attribute, and old value of each change, ignoring new submodules."""
        changed = []
        for name, place, before in self._places:
            now = vars(place)
            if _identical(before, now):
                continue
            for key in before.keys() | now.keys():
                old, new = before.get(key, _GONE), now.get(key, _GONE)
                if old is not new and not isinstance(new, ModuleType) and key not in _BOOKKEEPING:
                    changed.append((name, place, key, old))
        return changed

    def _processes(self) -> list[int]:
        """Return the ids of new processes with the token in their command line."""
        return [int(pid) for pid, line in self._new_commands() if self.token.encode() in line]

    def _forks(self) -> bool:
        """Return whether a new child of this process has not started another program yet."""
        own = _read("self/cmdline")
        children = (b" R %d " % os.getpid(), b" S %d " % os.getpid(), b" D %d " % os.getpid())
        return any(
            line in (own, b"")  # it is empty while a program is being loaded
            and _read(f"{pid}/stat").rpartition(b")")[2].startswith(children)
            for pid, line in self._new_commands()
        )

    def _new_commands(self) -> list[tuple[str, bytes]]:
        """Return id and command line of each process that started after the snapshot."""
        return [(pid, _read(f"{pid}/cmdline")) for pid in _process_ids() - self._old_processes]


def _working_directory() -> Path | None:
    """Return the working directory; None if it was deleted."""
    with suppress(FileNotFoundError):
        return Path.cwd()
    return None


def _read(path: str) -> bytes:
    """Return the content of a file in /proc; empty if its process has ended."""
    with suppress(OSError), open(f"/proc/{path}", "rb") as file:
        return file.read()
    return b""


def _process_ids() -> set[str]:
    """Return the ids of all processes; empty without /proc."""
    return set(filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()))


def _identical(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two mappings have the same objects as keys and values, in the same order."""
    return (
        len(first) == len(second)
        and all(map(operator.is_, first, second))
        and all(map(operator.is_, first.values(), second.values()))
    )


_OWN_VARIABLES = {"PYTEST_CURRENT_TEST", "LINES", "COLUMNS"}
_BOOKKEEPING = {"__warningregistry__", "_abc_impl", "last_type", "last_value", "last_traceback", "last_exc"}
"""Attributes that the interpreter itself sets."""


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that `call` would take if nothing else ran on the machine.

    This is the wall-clock time minus the time in which this process and its children waited for a CPU.
    """
    start, used = time.perf_counter(), _computed()
    call()
    seconds, used = time.perf_counter() - start, _computed() - used
    return seconds - used * (_slowdown() - 1)


def _slowdown() -> float:
    """Return the current ratio of wall-clock time to CPU time of a computation."""
    start, used = time.perf_counter(), time.process_time()
    while time.process_time() - used < _SPIN:
        pass
    return max(1.0, (time.perf_counter() - start) / (time.process_time() - used))


def _computed() -> float:
    """Return the CPU time of this process and all its descendants, or without /proc, of this process."""
    times: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            pid = int(path.parent.name)
            times[pid] = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(pid)
    if not times:
        return time.process_time()
    family, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        family += times.get(pid, 0)
        waiting += children.get(pid, ())
    return family / os.sysconf("SC_CLK_TCK")
