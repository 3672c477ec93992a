"""Fork servers: starting them, requesting children, and ending them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gem_core.errors import SandboxError
from gem_envs.sandbox._guest.devices import DEVICE_FILES
from gem_envs.sandbox._limits import ONE_THREAD
from gem_envs.sandbox._packages import package_paths
from gem_envs.sandbox._program import starting

_GUEST = Path(__file__).with_name("_guest")
_SERVER = str(_GUEST / "server.py")
DRIVER = "shell_driver"
"""Name of the module `guest.shell` where programs can be run."""
_START_SECONDS = 60.0
_SPARE = 2
"""Number of idle children that each fork server keeps ready."""
_FIRST_IDS, _IDS = (1_879_048_192, 1), 60_000
"""Host user ids for children: candidates for the first id (unused, or a container's root), and number."""
_PROGRAMS = ("/bin", "/usr/bin", "/etc/alternatives")
_FOLDERS = ("app", "tests", "logs", "solution")
"""Folders that a shell expects; they link to folders inside the writable one."""
_SETTINGS = {
    "user.max_user_namespaces": "0",
    "kernel.unprivileged_userns_clone": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}
"""Settings of Linux, each with the value that forbids namespaces to users other than root, or to all."""
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")


class ForkServer:
    """One process of `guest.server` and its children."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.level = "namespace" if config["isolated"] else "process"
        self._isolated: bool = config["isolated"]
        self._lock = threading.Lock()
        self._spare: list[socket.socket] = []
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, starting(config["python"]):
                self.process = subprocess.Popen(
                    [config["python"], "-I", "-S", _SERVER, str(theirs.fileno()), json.dumps(config)],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                    start_new_session=True, pass_fds=(theirs.fileno(),), env=config["env"],
                )  # fmt: skip
        except BaseException:
            self._control.close()
            raise
        try:
            self._control.settimeout(_START_SECONDS)
            self._answer()
            ids = map_ids(self.process.pid) if self._isolated else 0
            self._control.send(json.dumps({"ids": ids}).encode())
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
            forbids = "; ".join(obstacles()) if self._isolated else ""
            why = f"{problem} ({forbids})" if forbids else problem
            raise SandboxError(f"level {self.level!r} is not available on this machine: {why}")

    def channel(self) -> socket.socket:
        """Return the channel of a child that was forked in advance, and request a replacement."""
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
        self._close_sockets()  # ends the server
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()  # in case it no longer responds
        self.process.wait()

    def _close_sockets(self) -> None:
        for link in (self._control, *self._spare):
            link.close()

    def forget(self) -> None:
        """Forget the server in a forked child, because it belongs to the parent."""
        self._close_sockets()
        self.process.returncode = 0  # the parent waits for it


def map_ids(process: int) -> int:
    """Map user ids for the children of a launcher; return their number, or 0 if the caller is not root."""
    if os.geteuid() != 0:
        return 0
    for first in _FIRST_IDS:
        with contextlib.suppress(OSError):
            for kind, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
                with open(f"/proc/{process}/{kind}", "w") as file:
                    file.write(f"1000 {own} 1\n1001 {first} {_IDS}\n")
            return _IDS
    return 0


def obstacles() -> Iterator[str]:
    """Yield the settings of this machine that forbid user namespaces, or may forbid them."""
    for name, forbids in _SETTINGS.items():
        with contextlib.suppress(OSError):
            value = Path("/proc/sys", name.replace(".", "/")).read_text().strip()
            if value == forbids:
                yield f"the sysctl {name} is {value}"
    if not os.path.exists("/proc/self/ns/user"):
        yield "the kernel has no user namespaces, or /proc is not mounted"
    with contextlib.suppress(OSError):
        if "\nSeccomp:\t2" in Path("/proc/self/status").read_text():
            yield "this process has a seccomp filter, such as Docker's default profile, which may refuse them"


def configure(
    packages: Sequence[str],
    disk_bytes: int,
    programs: bool = False,
    modules: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the configuration of a fork server of level `namespace`.

    Args:
        packages: Distributions that programs can import.
        disk_bytes: Size of a program's writable folder, in bytes.
        programs: Whether the machine's programs can be run. The server then also runs the driver of shells.
        modules: Source of trusted modules by name, which the server runs before any program.
    """
    if programs:
        modules = {**modules, DRIVER: (_GUEST / "shell.py").read_text(encoding="utf-8")}
    bind, links = visible_folders([os.path.realpath(sys.base_prefix), *(_PROGRAMS if programs else ())])
    links += [["/tmp", "program"], ["/dev/shm", "../program"]]
    links += [[f"/{name}", f"program/{name}"] for name in _FOLDERS if programs]
    if not programs:
        links += [[device, file] for device, file in DEVICE_FILES.items()]
    site = {top: path for top, path in package_paths(packages).items() if os.path.exists(path)}
    bind += [[path, f"/packages/{top}"] for top, path in site.items()]
    return {
        **_common(modules),
        "isolated": True,
        "mount_point": tempfile.gettempdir(),
        "bind": bind,
        "links": links,
        "path": ["/packages"] if packages else [],
        "preload": list(packages),
        "disk_bytes": disk_bytes,
        "files": 4096,
    }


def visible_folders(paths: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Return what of some paths and the libraries to mount in a root folder, and the links between them."""
    visible = dict.fromkeys([*paths, *_LIBRARIES])
    bind, links = [], []
    for path in visible:
        if os.path.islink(path):
            links.append([path, os.readlink(path)])
        elif os.path.exists(path) and not any(path.startswith(f"{other}/") for other in visible):
            bind.append([path, path])
    return bind, links


def configure_process(modules: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of a fork server of level `process`, which can import installed packages."""
    return {**_common(modules), "isolated": False, "path": [path for path in sys.path if path], "preload": []}


def _common(modules: Mapping[str, str]) -> dict[str, Any]:
    return {
        "python": os.path.realpath(sys.executable),
        "modules": dict(modules),
        "env": {
            "PYTHONHASHSEED": "0",
            "LANG": "C.UTF-8",
            "HOME": "/program",
            "TMPDIR": "/program",
            **ONE_THREAD,
        },
    }
