"""Level ``namespace``: each program in user, mount, process, network and ipc namespaces of Linux.

What holds here, besides the limits of level `process`:

- no file of the machine but the interpreter, its libraries and the packages that are allowed, all read-only
  (for a shell also the programs in ``/usr/bin``);
  one folder to write in, in memory, of limited size, gone with the program;
- no network, not even to the machine itself; no process but the program's own is visible or can be signalled;
- when the program ends or is stopped, the kernel ends everything that it started;
- no capability, no way to gain one, and where seccomp works none of the kernel calls in `_denied`;
- the limit of processes is the program's own where the caller is root and ids can be mapped; elsewhere it is
  shared by the programs of one fork server.

What this level does not stop: a fault in the kernel; timing and other side channels; use of memory and CPU up
to the limits in each of its processes at the same time.

Programs run in children that a fork server has made ahead, so a run costs milliseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gem_core.errors import SandboxError
from gem_core.sandbox.exchange import Channel, exchange
from gem_core.sandbox.fork_server import ForkServer, configure, configure_process
from gem_core.sandbox.process import ISOLATED, Limits, RunResult

_AT_ONCE = 4
"""Programs at the same moment, for each fork server: some of them wait more than they compute."""


class Namespace:
    """Programs at level `namespace`; from any thread.

    Args:
        packages: Distributions that programs can import, with all that they require. They are imported
            once, ahead of the programs.
        workers: Fork servers; four times as many programs run at the same moment, the others wait. None:
            one a core.
        disk_bytes: Size of the folder that a program can write in.
        programs: Whether the programs of the machine (``/usr/bin``) can be run, as a shell needs them.
        modules: Source of trusted modules by name. Each fork server runs it once, then calls ``warm_up()``
            of the module; programs can import it.

    Raises:
        SandboxError: The machine does not allow it.
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
        workers = workers or len(os.sched_getaffinity(0))
        self._config = config
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_AT_ONCE * workers)
        self._turn = itertools.count()
        self._servers: list[ForkServer | None] = [None] * workers
        self._closed = False
        self._servers[0] = ForkServer(self._config)
        _open.add(self)

    def run(
        self,
        code: str,
        *,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> RunResult:
        """Run a Python program to its end.

        Args:
            code: Source of the program.
            stdin: What it can read.
            files: Put into its folder before it starts, by their relative path.
            fetch: Files of its folder that come back in `RunResult.files`, where it has written them.
            limits: None for `process.ISOLATED`.

        Returns:
            The result; a program that fails, loops or floods is a result too, and so is one whose
            fork server was killed under it.
        """
        with self._slots:
            channel = self._channel()
            try:
                return exchange(channel, code, stdin, files or {}, fetch, limits or ISOLATED, session=False)
            finally:
                channel.close()

    def session(self) -> Session:
        """A process whose variables and files stay from one program to the next."""
        return Session(self)

    def close(self) -> None:
        """End all that runs. May be called more than once."""
        with self._lock:
            self._closed = True
            servers, self._servers = self._servers, [None] * len(self._servers)
        for server in servers:
            if server is not None:
                server.close()

    def processes(self) -> list[int]:
        """Process ids of the fork servers."""
        return [server.process.pid for server in self._servers if server is not None]

    def _channel(self) -> Channel:
        """A child of the next fork server; a server that has died is replaced."""
        place = next(self._turn) % len(self._servers)
        for _ in range(3):
            with self._lock:
                if self._closed:
                    raise SandboxError("this sandbox was closed")
                server = self._servers[place]
                if server is None or not server.alive():
                    if server is not None:
                        server.close()
                    server = self._servers[place] = ForkServer(self._config)
            with contextlib.suppress(OSError):
                return Channel(server.channel(), server)
        raise SandboxError("the fork server ends as soon as it is started")

    def forget(self) -> None:
        """In a forked child: the fork servers are the parent's."""
        for server in self._servers:
            if server is not None:
                server.forget()
        self._servers = [None] * len(self._servers)
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_AT_ONCE * len(self._servers))


class ForkedProcess(Namespace):
    """Programs at level `process`, in children of a fork server that has run trusted modules; Linux only.

    What gets through is what gets through `process`, except for the kernel calls in `_denied`, which are
    refused here too where seccomp works.
    """

    level = "process"

    def __init__(self, *, modules: Mapping[str, str], workers: int | None = None) -> None:
        self._start(configure_process(modules), workers)


class Session:
    """A process whose variables and files stay; made when it is first used, ended by `close`."""

    def __init__(self, owner: Namespace) -> None:
        self._owner = owner
        self._channel: Channel | None = None
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether there is a process that remembers earlier programs."""
        return self._channel is not None

    def run(
        self,
        code: str,
        *,
        stdin: str = "",
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> RunResult:
        """Run a program in the process; see `Namespace.run`. One that is stopped ends it."""
        with self._lock, self._owner._slots:
            if self._channel is None:
                self._channel = self._owner._channel()
            result = exchange(
                self._channel, code, stdin, files or {}, fetch, limits or ISOLATED, session=True
            )
            if self._channel.over:
                self._channel.close()
                self._channel = None
            return result

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None


_open: weakref.WeakSet[Namespace] = weakref.WeakSet()


def _close_all() -> None:
    for sandbox in list(_open):
        sandbox.close()


def _forget_all() -> None:
    for sandbox in list(_open):
        sandbox.forget()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
