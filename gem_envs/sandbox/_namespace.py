"""Level ``namespace``: each program in its own user, mount, process, network, and IPC namespaces of Linux.

In addition to the limits of level `process`, the level enforces:

- no files of the machine except the interpreter, its libraries, and the allowed packages, all read-only (for
  a shell also the programs in ``/usr/bin``), and one writable folder in memory, of limited size, which
  disappears with the program;
- no network, not even to the machine itself; no other process can be seen or signaled;
- when the program ends or is stopped, the kernel ends everything that it started;
- no capabilities, no way to gain any, and, if seccomp works, none of the system calls in `guest.denied`, such
  as those that allocate kernel memory which no limit counts;
- a process limit per program if the caller is root and ids can be mapped, and otherwise one that the programs
  of a fork server share.

The level does not block: a vulnerability of the kernel; timing and other side channels; use of memory and CPU
up to the limits in each of the program's processes at the same time.

Programs run in children that a fork server forks in advance, so a run takes milliseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import sys
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gem_core._util.forks import ForkSafeLock, renew_after_fork
from gem_core._util.places import Attempts, Places, on_clock
from gem_core.errors import SandboxError
from gem_envs.sandbox._exchange import Channel, exchange
from gem_envs.sandbox._fork_server import ForkServer, configure, configure_process
from gem_envs.sandbox._program import Program, Runner, Sandbox, cores, program_places
from gem_envs.sandbox._result import RunResult


class Namespace(Sandbox):
    """Runs programs at level `namespace`; safe to use from any thread.

    Args:
        packages: Distributions that programs can import, with their requirements. They are imported once,
            before the programs.
        workers: Number of fork servers. Four times as many programs run concurrently; others wait. None uses
            one per core. A program that nobody waits for anymore does not start, or is stopped.
        disk_bytes: Size of a program's writable folder, in bytes.
        programs: Whether the machine's programs (``/usr/bin``) can be run, as a shell requires.
        modules: Source of trusted modules by name. Each fork server runs a module once, then calls its
            ``warm_up()``; programs can import it.

    Raises:
        SandboxError: The machine does not allow the level.
        MissingDependency: A package is not installed.
    """

    level = "namespace"

    def __init__(
        self,
        *,
        packages: Sequence[str] = (),
        workers: int | None = None,
        disk_bytes: int = 64 * 2**20,
        programs: bool = False,
        modules: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        if sys.platform != "linux":
            raise SandboxError("level 'namespace' needs Linux")
        self._start(configure(packages, disk_bytes, programs, modules), workers)

    def _start(self, config: dict[str, Any], workers: int | None) -> None:
        workers = workers or cores()
        self._config = config
        self._lock = ForkSafeLock()
        self._slots = program_places(workers)
        self._starts = [Attempts() for _ in range(workers)]
        self._turn = itertools.count()
        self._servers: list[ForkServer | None] = [None] * workers
        self._closed = False
        self._servers[0] = ForkServer(self._config)
        _open.add(self)
        renew_after_fork(self)

    def run_program(self, program: Program) -> RunResult:
        with self._slots.held():
            channel = self._channel()
            try:
                return exchange(channel, program, session=False)
            finally:
                channel.close()

    def session(self) -> SandboxSession:
        """Return a session, whose variables and files persist from one program to the next."""
        return SandboxSession(self)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            servers, self._servers = self._servers, [None] * len(self._servers)
        for server in servers:
            if server is not None:
                server.close()

    def processes(self) -> list[int]:
        """Return the process ids of the fork servers."""
        return [server.process.pid for server in self._servers if server is not None]

    def _channel(self) -> Channel:
        """Return a channel to a child of the next fork server, replacing a server that died."""
        place = next(self._turn) % len(self._servers)
        for _ in range(3):
            server = self._servers[place]
            if server is None or not server.alive():
                server = self._started(place)
            with contextlib.suppress(OSError):
                return Channel(server.channel(), server)
        raise SandboxError("the fork server ends as soon as it starts")

    def _started(self, place: int) -> ForkServer:
        """Return a server that is alive; start one if necessary, which may take long."""
        with self._starts[place].one():
            server = self._servers[place]
            if server is not None and server.alive():
                return server
            if server is not None:
                server.close()
            server = None if self._closed else ForkServer(self._config)
            with self._lock:
                if server is not None and not self._closed:
                    self._servers[place] = server
                    return server
            if server is not None:
                server.close()
            raise SandboxError("the sandbox is closed")

    def forget_parent(self) -> None:
        """Forget the fork servers in a forked child, because they belong to the parent."""
        for server in self._servers:
            if server is not None:
                server.forget()
        self._servers = [None] * len(self._servers)


class ForkedProcess(Namespace):
    """Runs programs at level `process`, in children of a fork server that has run trusted modules.

    Linux only. It blocks what level `process` blocks and, if seccomp works, the system calls in
    `guest.denied`.
    """

    level = "process"

    def __init__(self, *, modules: Mapping[str, str], workers: int | None = None) -> None:
        self._start(configure_process(modules), workers)


class SandboxSession(Runner):
    """Process whose variables and files persist; starts on first use.

    It ends with `close`, with a program that is stopped, and with an exception in the caller, such as a
    `KeyboardInterrupt`: the next program would receive the result of this one.
    """

    def __init__(self, owner: Namespace) -> None:
        self._owner = owner
        self._channel: Channel | None = None
        self._turn = Places(1)
        renew_after_fork(self)

    @property
    def alive(self) -> bool:
        """Whether a process with the state of earlier programs exists."""
        return self._channel is not None

    def run_program(self, program: Program) -> RunResult:
        with self._turn.held(), self._owner._slots.held():
            if self._channel is None:
                self._channel = self._owner._channel()
            over = True
            try:
                result = exchange(self._channel, program, session=True)
                over = self._channel.over
            finally:
                if over:
                    self._end()
            return result

    def close(self) -> None:
        """End the process, after the program that it runs."""
        with on_clock(None), self._turn.held():  # also in a call that was given up
            self._end()

    def forget_parent(self) -> None:
        """Forget the process in a forked child, because it belongs to the parent."""
        self._end()

    def _end(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


_open: weakref.WeakSet[Namespace] = weakref.WeakSet()


def _close_all() -> None:
    for sandbox in list(_open):
        sandbox.close()


atexit.register(_close_all)
