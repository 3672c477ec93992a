"""Level ``namespace``: each program in user, mount, process, network and ipc namespaces of Linux.

What holds here, besides the limits of level `process`:

- no file of the machine but the interpreter, its libraries and the packages that are allowed, all read-only;
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
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import SandboxError
from gem_core.sandbox.files import relative
from gem_core.sandbox.packages import package_paths
from gem_core.sandbox.process import ISOLATED, Ending, Limits, RunResult

LEVEL = "namespace"
_SERVER = str(Path(__file__).with_name("_server.py"))
_START_SECONDS = 60.0
_KILL_SECONDS = 5.0
_SPARE = 2
"""Children of each fork server that wait for a program."""
_FIRST_ID, _IDS = 1_879_048_192, 60_000
"""User ids outside that the children of a fork server have; nobody else's."""
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")


class Namespace:
    """Programs at level `namespace`; from any thread.

    Args:
        packages: Distributions that programs can import, with all that they require. They are imported
            once, ahead of the programs.
        workers: Fork servers, and half of the programs that run at the same moment; the others wait. None:
            one a core.
        disk_bytes: Size of the folder that a program can write in.

    Raises:
        SandboxError: The machine does not allow it.
        MissingDependency: A package is not installed.
    """

    level = LEVEL

    def __init__(
        self, *, packages: Sequence[str] = (), workers: int | None = None, disk_bytes: int = 64 * 2**20
    ) -> None:
        if sys.platform != "linux":
            raise SandboxError("level 'namespace' needs Linux")
        workers = workers or len(os.sched_getaffinity(0))
        self._config = _config(packages, disk_bytes)
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(2 * workers)
        self._turn = itertools.count()
        self._servers: list[_ForkServer | None] = [None] * workers
        self._closed = False
        self._servers[0] = _ForkServer(self._config)
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
                return _exchange(channel, code, stdin, files or {}, fetch, limits or ISOLATED, session=False)
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

    def _channel(self) -> _Channel:
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
                    server = self._servers[place] = _ForkServer(self._config)
            with contextlib.suppress(OSError):
                return _Channel(server.channel(), server)
        raise SandboxError("the fork server ends as soon as it is started")

    def forget(self) -> None:
        """In a forked child: the fork servers are the parent's."""
        for server in self._servers:
            if server is not None:
                server.forget()
        self._servers = [None] * len(self._servers)
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(2 * len(self._servers))


class Session:
    """A process whose variables and files stay; made when it is first used, ended by `close`."""

    def __init__(self, owner: Namespace) -> None:
        self._owner = owner
        self._channel: _Channel | None = None
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
            result = _exchange(
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


class _Channel:
    """To one child."""

    def __init__(self, link: socket.socket, server: _ForkServer) -> None:
        self.link = link
        self.server = server
        self.over = False

    def close(self) -> None:
        self.link.close()


class _ForkServer:
    """One process of `_server`, with its children."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self._spare: list[socket.socket] = []
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [config["python"], "-I", "-S", _SERVER, str(theirs.fileno()), json.dumps(config)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                start_new_session=True, pass_fds=(theirs.fileno(),), env=config["env"],
            )  # fmt: skip
        try:
            self._control.settimeout(_START_SECONDS)
            self._answer()
            self._control.send(json.dumps({"ids": self._map_ids()}).encode())
            self._answer()
            self._control.settimeout(None)
        except BaseException:
            self.close()
            raise

    def _answer(self) -> None:
        try:
            message = self._control.recv(8192)
        except TimeoutError:
            raise SandboxError(f"the fork server did not start within {_START_SECONDS:g} seconds") from None
        if not message:
            raise SandboxError("the fork server did not start")
        if problem := json.loads(message).get("error"):
            raise SandboxError(f"level 'namespace' is not available here: {problem}")

    def _map_ids(self) -> int:
        """Give the children user ids of their own; 0 where that is not ours to do."""
        if os.geteuid() != 0:
            return 0
        for kind, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
            try:
                with open(f"/proc/{self.process.pid}/{kind}", "w") as file:
                    file.write(f"1000 {own} 1\n1001 {_FIRST_ID} {_IDS}\n")
            except OSError:  # root of a container has the ids that it was given
                with contextlib.suppress(OSError):
                    Path(f"/proc/{self.process.pid}/setgroups").write_text("deny")
                return 0
        return _IDS

    def channel(self) -> socket.socket:
        """To a child that was made ahead; another one is made in its place."""
        with self._lock:
            while len(self._spare) <= _SPARE:
                self._spare.append(self._ask_for_child())
            return self._spare.pop(0)

    def _ask_for_child(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._control, [b"child"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self._close_sockets()  # the server ends when it sees that
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()  # and by this, when it sees nothing any more
        self.process.wait()

    def _close_sockets(self) -> None:
        for link in (self._control, *self._spare):
            link.close()

    def forget(self) -> None:
        """In a forked child: the server is the parent's."""
        self._close_sockets()
        self.process.returncode = 0  # not ours to wait for


def _exchange(
    channel: _Channel,
    code: str,
    stdin: str,
    files: Mapping[str, bytes],
    fetch: Sequence[str],
    limits: Limits,
    *,
    session: bool,
) -> RunResult:
    """Send a program and wait for its end."""
    cpu_seconds = max(1, -int(-limits.cpu_seconds // 1))
    numbers = [cpu_seconds, limits.memory_bytes, limits.file_bytes, limits.processes, limits.open_files]
    request = {"session": session, "limits": numbers, "fetch": [relative(name) for name in fetch]}
    packed = b"".join(
        json.dumps([relative(name), len(data)]).encode() + b"\n" + data for name, data in files.items()
    )
    with contextlib.ExitStack() as stack:
        given = (
            code.encode("utf-8", "surrogatepass"),
            stdin.encode("utf-8", "surrogatepass"),
            b"",
            b"",
            packed,
        )
        descriptors = [_memory_file(stack, data) for data in given]
        start = time.perf_counter()
        with contextlib.suppress(OSError):  # it is gone: what follows sees that
            socket.send_fds(channel.link, [json.dumps(request).encode()], descriptors)
        exit_code, timed_out = _wait(channel, limits.wall_seconds)
        seconds = time.perf_counter() - start
        stdout, more_out = _head(descriptors[2], limits.output_bytes)
        stderr, more_err = _head(descriptors[3], limits.output_bytes)
        fetched = _unpack(descriptors[4], limits.file_bytes * max(1, len(fetch))) if fetch else {}
    if exit_code is None:
        channel.over = True
        exit_code = -9
        if not timed_out:
            stderr += "The process of the sandbox was killed."
    if timed_out or exit_code == -24 or (exit_code == -9 and seconds >= limits.cpu_seconds):
        ending: Ending = "timeout"
    elif exit_code < 0:
        ending = "killed"
    else:
        ending = "failed" if exit_code else "ok"
    return RunResult(stdout, stderr, ending, exit_code, seconds, more_out or more_err, LEVEL, fetched)


def _wait(channel: _Channel, seconds: float) -> tuple[int | None, bool]:
    """Exit code (None when none came) and whether the time was up; what is stopped has ended then."""
    poll = select.poll()
    poll.register(channel.link, select.POLLIN)
    if poll.poll(seconds * 1000):
        exit_code = _exit_code(channel)
        return exit_code, False
    channel.over = True
    with contextlib.suppress(OSError):
        channel.link.shutdown(socket.SHUT_WR)  # the server kills the child and tells its exit code
    if not poll.poll(_KILL_SECONDS * 1000):
        channel.server.close()  # it hangs: with it ends all that it has started
    _exit_code(channel)
    return None, True


def _exit_code(channel: _Channel) -> int | None:
    """From the child or its server; whatever else a program has written into the channel is no exit code."""
    try:
        message = channel.link.recv(65536)
        answer = json.loads(message) if message else {"exit": None}
        value = answer["exit"]
        channel.over = channel.over or "over" in answer
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        value = None
    if not isinstance(value, int) or not -64 <= value <= 255:
        return None
    if value < 0:
        channel.over = True
    return value


def _memory_file(stack: contextlib.ExitStack, data: bytes) -> int:
    descriptor = os.memfd_create("gem-sandbox", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done:])
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _head(descriptor: int, size: int) -> tuple[str, bool]:
    data = os.pread(descriptor, size + 1, 0)
    return data[:size].decode("utf-8", "replace"), len(data) > size


def _unpack(descriptor: int, most: int) -> dict[str, bytes]:
    """Files as the child has packed them; what it has packed wrongly is left out."""
    data = os.pread(descriptor, most + 65536, 0)
    files, position = {}, 0
    with contextlib.suppress(ValueError, TypeError):
        while position < len(data):
            end = data.index(b"\n", position)
            name, size = json.loads(data[position:end])
            files[str(name)] = data[end + 1 : end + 1 + int(size)]
            position = end + 1 + max(0, int(size))
    return files


def _config(packages: Sequence[str], disk_bytes: int) -> dict[str, Any]:
    """What the fork server has to know."""
    python = os.path.realpath(sys.executable)
    shown = dict.fromkeys([os.path.realpath(sys.base_prefix), *_LIBRARIES])
    bind, links = [], []
    for path in shown:
        if os.path.islink(path):
            links.append([path, os.readlink(path)])
        elif os.path.exists(path) and not any(path.startswith(f"{other}/") for other in shown):
            bind.append([path, path])
    site = {top: path for top, path in package_paths(packages).items() if os.path.exists(path)}
    bind += [[path, f"/packages/{top}"] for top, path in site.items()]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        "python": python,
        "mount_point": tempfile.gettempdir(),
        "bind": bind,
        "links": links,
        "path": ["/packages"] if packages else [],
        "preload": list(packages),
        "env": {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": "/work", "TMPDIR": "/work", **threads},
        "disk_bytes": disk_bytes,
        "files": 4096,
    }


_open: weakref.WeakSet[Namespace] = weakref.WeakSet()


def _close_all() -> None:
    for sandbox in list(_open):
        sandbox.close()


def _forget_all() -> None:
    for sandbox in list(_open):
        sandbox.forget()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
