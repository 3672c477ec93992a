"""Run a foreign program, such as a coding agent, in its own namespaces, with a port that the caller serves.

    box = Box(["my-agent"], {"PATH": "/usr/bin"}, files={"app/notes.txt": File(b"hello")}, port=8000)
    async with box:
        ...  # serve box.listener
        ended = await box.wait()
    ended.status, ended.files

The program sees the programs and libraries of the machine, read-only, its folder ``/app``, and its home. It
has no network but a loopback device of its own, on which only the caller and what it starts itself can
listen. Its files are in memory; those in ``/app`` are returned at the end. What is said of level
``namespace`` holds, except that it may open sockets and see its own processes.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import os
import shutil
import socket
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from gem_core._util.threads import in_thread
from gem_core.errors import SandboxError
from gem_envs.sandbox._fork_server import map_ids, obstacles, visible_folders
from gem_envs.sandbox._shell import File, Files

_GUEST = Path(__file__).with_name("_guest") / "box.py"
_START_SECONDS = 60.0
SHOWN = 2000
"""Number of bytes of the output that are returned."""
_USER = "agent"
_TEXTS = {
    "/etc/passwd": "".join(f"{_USER}:x:{id}:{id}::/home:/bin/sh\n" for id in (1001, 1000)),
    "/etc/group": "".join(f"{_USER}:x:{id}:\n" for id in (1001, 1000)),
    "/etc/hosts": "127.0.0.1 localhost\n",
}
_LINKS = (
    ("/dev/ptmx", "pts/ptmx"), ("/var/tmp", "../tmp"), ("/dev/shm", "../tmp"), ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"), ("/dev/stderr", "/proc/self/fd/2"),
)  # fmt: skip
_OWN = ("/app", "/home", "/tmp")
_VISIBLE = ("/usr", "/bin", "/sbin", "/etc/alternatives", "/etc/ssl", "/etc/pki")


@dataclass(frozen=True)
class BoxLimits:
    """Limits of a program and of what it starts.

    Attributes:
        memory_bytes: Memory of each of its processes.
        disk_bytes: Size of its folders together, which are in memory.
        files: Maximum number of files in them.
        result_bytes: Size of the files that it may leave.
        processes: Maximum number of processes and threads.
        open_files: Maximum number of open files of each process.
    """

    memory_bytes: int = 4 * 2**30
    disk_bytes: int = 2**30
    files: int = 200_000
    result_bytes: int = 16 * 2**20
    processes: int = 512
    open_files: int = 4096

    def process_limits(self) -> dict[str, int]:
        """Return the limits that the kernel knows, by name."""
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_DATA": self.memory_bytes,
            "RLIMIT_FSIZE": self.disk_bytes,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": self.open_files,
        }


class BoxEnd(NamedTuple):
    """What a program left.

    Attributes:
        status: Exit status; negative for the number of a signal.
        output: End of its output.
        files: Files in ``/app``; None if they cannot be read.
    """

    status: int
    output: str
    files: dict[str, File] | None


class Box:
    """A program in its own namespaces.

    Args:
        command: The program and its arguments. It can read the files that they name.
        variables: Its environment variables.
        files: Files by path below ``app``, its working folder, or ``home``.
        stdin: Text of its standard input.
        folder: Its working folder, "/app" or "/home".
        port: Port on its loopback device that the caller serves.
        reads: Further folders that it can read.
        limits: Limits.
        grace: Number of seconds between the request to end and the kill.

    Attributes:
        listener: Socket on which the caller accepts connections of the program.
    """

    listener: socket.socket

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        files: Files | None = None,
        stdin: str = "",
        folder: str = "/app",
        port: int,
        reads: Iterable[str] = (),
        limits: BoxLimits | None = None,
        grace: float = 5.0,
    ) -> None:
        self._limits = limits or BoxLimits()
        scripts = [word for word in command[1:] if os.path.isabs(word) and os.path.isfile(word)]
        package = program_folders(command[0], variables.get("PATH", os.defpath))
        bind, links = visible_folders([os.path.realpath(sys.base_prefix), *_VISIBLE, *package])
        bind += [[os.path.realpath(path), path] for path in dict.fromkeys([*scripts, *reads])]
        size = self._limits
        self._config = {
            "command": list(command),
            "env": {**variables, "HOME": "/home", "PWD": folder, "TMPDIR": "/tmp", "USER": _USER},
            "port": port,
            "folder": folder,
            "grace": grace,
            "bind": bind,
            "links": [*links, *_LINKS],
            "folders": ["/proc", "/dev/pts", "/var", *_OWN],
            "own": _OWN,
            "texts": _TEXTS,
            "processes": True,
            "mount_point": tempfile.gettempdir(),
            "disk_bytes": size.disk_bytes,
            "files": size.files,
            "result_bytes": size.result_bytes,
            "limits": size.process_limits(),
        }
        self._given, self._stdin = dict(files or {}), stdin
        self._open: list[IO[bytes]] = []

    async def __aenter__(self) -> Box:
        """Start the program.

        Raises:
            SandboxError: The machine does not allow it.
        """
        try:
            config, given, stdin, self._result, self._output = (self._file() for _ in range(5))
            config.write(json.dumps(self._config).encode())
            pack(given, self._given)
            stdin.write(self._stdin.encode("utf-8", "replace"))
            for file in (config, given, stdin):
                file.seek(0)
            for file in (stdin, self._output):
                os.fchmod(file.fileno(), 0o666)  # the program opens /dev/stdin as another user
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                passed = [file.fileno() for file in (theirs, config, given, stdin, self._result)]
                command = [os.path.realpath(sys.executable), "-I", "-S", str(_GUEST), *map(str, passed)]
                self._process = await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.DEVNULL, stdout=self._output, stderr=self._output,
                    cwd="/", start_new_session=True, pass_fds=passed,
                )  # fmt: skip
            self.listener = await in_thread(self._handshake)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the program and everything that it started."""
        await self._close()

    async def wait(self) -> BoxEnd:
        """Wait until the program ends, and return what it left.

        Raises:
            SandboxError: What watches it was killed.
        """
        self._control.setblocking(False)
        message = await asyncio.get_running_loop().sock_recv(self._control, 8192)
        answer = json.loads(message) if message else {"error": "its first process was killed"}
        if "error" in answer:
            raise SandboxError(f"the program cannot be run in namespaces: {answer['error']}")
        files = None
        if answer["whole"]:
            self._result.seek(0)
            files = unpack(self._result)
        self._output.seek(max(0, self._output.seek(0, io.SEEK_END) - SHOWN))
        return BoxEnd(int(answer["status"]), self._output.read().decode("utf-8", "replace").strip(), files)

    def end(self) -> None:
        """Ask the program to end; `wait` returns when it has, or was killed after the grace period."""
        self._control.send(b"end")

    def _file(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the box
        self._open.append(file)
        return file

    def _handshake(self) -> socket.socket:
        self._control.settimeout(_START_SECONDS)
        self._check(self._control.recv(8192))
        self._control.send(json.dumps({"ids": map_ids(self._process.pid)}).encode())
        message, descriptors, _, _ = socket.recv_fds(self._control, 8192, 1)
        self._check(message)
        return socket.socket(fileno=descriptors[0])

    def _check(self, message: bytes) -> None:
        error = json.loads(message).get("error") if message else "its first process ended"
        if error:
            why = "; ".join(obstacles())
            raise SandboxError(f"the program cannot be run in namespaces: {error}{why and f' ({why})'}")

    async def _close(self) -> None:
        if hasattr(self, "listener"):
            self.listener.close()
        if hasattr(self, "_control"):
            self._control.close()  # ends all
        if hasattr(self, "_process"):
            await self._process.wait()
        for file in self._open:
            file.close()


def program_folders(program: str, path: str) -> list[str]:
    """Return the folders that a program needs: its own, its package, and its interpreter."""
    found = shutil.which(program, path=path)
    folders: list[str] = []
    while found is not None and found not in folders:
        real = Path(os.path.realpath(found))
        folders += [found, os.path.dirname(found)]
        if "node_modules" in real.parts:
            folders.append(str(Path(*real.parts[: real.parts.index("node_modules") + 1])))
        for place in (Path(found).parent.parent, real.parent.parent):
            if (place / "pyvenv.cfg").exists():
                folders.append(str(place))
        folders.append(str(real.parent))
        with real.open("rb") as file:
            words = file.readline(4096).decode("utf-8", "replace").removeprefix("#!").split()
            script = file.seek(0) == 0 and file.read(2) == b"#!"
        if not script or not words:
            break
        name = words[-1] if os.path.basename(words[0]) == "env" else words[0]
        found = shutil.which(name, path=path)
    return [folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)]


def pack(file: IO[bytes], files: Files) -> None:
    """Write files as an archive."""
    with tarfile.open(fileobj=file, mode="w:") as archive:
        for path, one in files.items():
            member = tarfile.TarInfo(path)
            member.mode, data = one.mode, one.data
            if one.target is not None:
                member.type, member.linkname, data = tarfile.SYMTYPE, one.target, b""
            elif one.folder:
                member.type, member.mode, data = tarfile.DIRTYPE, 0o755, b""
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def unpack(file: IO[bytes]) -> dict[str, File]:
    """Return the files of an archive."""
    files: dict[str, File] = {}
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            source = archive.extractfile(member) if member.isfile() else None
            files[member.name] = File(
                source.read() if source else b"",
                member.mode,
                member.linkname if member.issym() else None,
                member.isdir(),
                member.isfifo(),
            )
    return files


@functools.cache
def box_obstacle() -> str:
    """Return why a box does not work on this machine; empty if it does."""
    if sys.platform != "linux":
        return "it needs Linux"

    async def proof() -> str:
        late = ""
        for _ in range(3):  # a busy machine is no reason to run commands elsewhere
            try:
                async with Box(["true"], {"PATH": os.defpath}, port=8000) as box:
                    ended = await box.wait()
            except TimeoutError:
                late = f"it did not start within {_START_SECONDS:g} seconds"
            except (SandboxError, OSError) as error:
                return str(error)
            else:
                return "" if ended.status == 0 else f"a test program did not run: {ended.output}"
        return late

    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(proof())))  # this one may have a loop
    thread.start()
    thread.join()
    return found[0]
