"""Runs one foreign program, such as a coding agent, in its own namespaces.

Runs as ``python -I -S box.py CONTROL CONFIG FILES INPUT RESULT``. The arguments are descriptors: a socket,
three files to read, and one to write.

- The launcher creates the namespaces and waits for the first process in them.
- That process builds the root folder, writes the files, listens on a port of its own network, and gives the
  socket to the caller, who serves it. It starts the program and waits for it. Then it ends everything that
  the program left behind, and writes the files in ``/app``. When the caller closes CONTROL, it ends, and the
  kernel ends the rest.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import tarfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.sandbox._guest import kernel
    from gem_envs.sandbox._guest.devices import WORK
    from gem_envs.sandbox._guest.root import INSIDE_ID, attach, build_root, drop_rights, enter, mount_work
else:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from _guest import kernel
    from _guest.devices import WORK
    from _guest.root import INSIDE_ID, attach, build_root, drop_rights, enter, mount_work

    del sys.path[0]

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_GLANCE = 1.0
"""Number of seconds between two looks at processes that have ended."""
_FORMAT_BYTES = 512
"""Size of a header in an archive."""


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    with os.fdopen(int(sys.argv[2])) as file:
        config = json.load(file)
    try:
        run(control, config, *map(int, sys.argv[3:]))
    except Exception as error:
        tell(control, {"error": f"{type(error).__name__}: {error}"})
        os._exit(1)


def run(control: socket.socket, config: dict[str, Any], files: int, given: int, result: int) -> None:
    ids = enter(control)
    try:
        kernel.die_with_parent()
        build_root(config)
        user = INSIDE_ID + 1 if ids else INSIDE_ID
        mount_work(user, config)
        fill(files, config["own"], [inside for _, inside in config["bind"]], user)
        with listen(config["port"]) as server:
            socket.send_fds(control, [b"{}"], [server.fileno()])
        kernel.hide_memory()
        program = start(config, given, user)
        status = wait(control, program, config["grace"])
        tell(control, {"status": status, "whole": collect(result, config["result_bytes"])})
    except Exception as error:
        tell(control, {"error": f"{type(error).__name__}: {error}"})
    os._exit(0)


def tell(control: socket.socket, message: dict[str, Any]) -> None:
    try:
        control.send(json.dumps(message).encode()[:4000])
    except OSError:
        os._exit(1)  # the caller has gone


def listen(port: int) -> socket.socket:
    """Return a socket that listens in this network, after its loopback device is up."""
    server = socket.socket()
    fcntl.ioctl(server, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(128)
    return server


def fill(files: int, own: list[str], visible: list[str], user: int) -> None:
    """Create the folders of the program, and write its files; what is visible below them stays visible."""
    for path in own:
        make_folders(WORK + path, user)
        hidden = [
            (os.open(one, os.O_PATH), os.path.isdir(one), one)
            for one in visible
            if one.startswith(f"{path}/")
        ]
        kernel.mount(WORK + path, path, None, kernel.MS_BIND)
        for descriptor, folder, one in hidden:
            attach(descriptor, folder, one)
            kernel.protect(one, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV)
    with os.fdopen(files, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            path, source = os.path.join(WORK, member.name), archive.extractfile(member)
            make_folders(os.path.dirname(path), user)
            if member.isdir():
                make_folders(path, user)
            elif member.issym():
                os.symlink(member.linkname, path)
            elif source is not None:
                with open(path, "wb") as target:
                    target.write(source.read())
            os.chown(path, user, user, follow_symlinks=False)
            if not member.issym():
                os.chmod(path, member.mode)


def make_folders(path: str, user: int) -> None:
    if not os.path.isdir(path):
        make_folders(os.path.dirname(path), user)
        os.mkdir(path, 0o755)
        os.chown(path, user, user)


def start(config: dict[str, Any], given: int, user: int) -> int:
    """Start the program, and return its process id."""
    program = os.fork()
    if program:
        return program
    try:
        os.dup2(given, 0)
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        for name, most in config["limits"].items():
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))
        kernel.no_new_privileges()  # before the filter, which needs it
        drop_rights(user, sockets=True)
        os.chdir(config["folder"])
        os.execvpe(config["command"][0], config["command"], config["env"])
    except OSError as error:
        what = str(error)
        if error.errno == errno.E2BIG:
            what = "its arguments are longer than the system allows, as a prompt of more than 128 KiB is"
        os.write(2, f"{config['command'][0]} cannot be started: {what}\n".encode())
    except ValueError as error:  # a prompt with a NUL
        os.write(2, f"{config['command'][0]} cannot be started: {error}\n".encode())
    os._exit(127)


def wait(control: socket.socket, program: int, grace: float) -> int:
    """Wait until the program ends, and return its exit code. On a message, ask it to end, then kill it."""
    process = os.pidfd_open(program)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(control, select.POLLIN)
    last = None
    while True:
        left = _GLANCE if last is None else min(_GLANCE, max(0.0, last - time.monotonic()))
        ready = [descriptor for descriptor, _ in poll.poll(left * 1000)]
        reap_others(program)
        if process in ready:
            break
        if control.fileno() in ready:
            if not control.recv(100):
                os._exit(0)  # the caller has gone
            signal_group(program, signal.SIGTERM)
            poll.unregister(control)
            last = time.monotonic() + grace
        elif last is not None and time.monotonic() >= last:
            signal_group(program, signal.SIGKILL)
            last = time.monotonic() + grace
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    try:
        os.kill(-1, signal.SIGKILL)  # every process of these namespaces but this one
        while True:
            os.waitpid(-1, 0)
    except (ChildProcessError, ProcessLookupError):
        return status


def reap_others(program: int) -> None:
    """Reap what has ended, except the program itself."""
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if found.si_pid in (0, program):
            return
        os.waitpid(found.si_pid, 0)


def signal_group(program: int, number: int) -> None:
    try:
        os.killpg(program, number)
    except ProcessLookupError:
        pass


def collect(result: int, most: int) -> bool:
    """Write the files in ``/app`` as an archive; return whether all of them are in it.

    What is neither a file, a folder, nor a link, and a file that does not fit, is a FIFO in the archive.
    """
    base = f"{WORK}/app"
    try:
        with os.fdopen(result, "wb") as file, tarfile.open(fileobj=file, mode="w:") as archive:
            for folder, folders, names in os.walk(base):
                for name in sorted(folders + names):
                    member, data = read(os.path.join(folder, name), base, most)
                    most -= len(data) + 2 * _FORMAT_BYTES
                    if most < 0:
                        return False
                    archive.addfile(member, io.BytesIO(data))
    except OSError:  # such as a name that is too long
        return False
    return True


def read(path: str, base: str, most: int) -> tuple[tarfile.TarInfo, bytes]:
    member, data = tarfile.TarInfo(os.path.relpath(path, base)), b""
    status = os.lstat(path)
    member.mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISREG(status.st_mode) and status.st_size <= most:
        with open(path, "rb") as source:
            data = source.read()
        member.size = len(data)
    else:
        member.type = tarfile.FIFOTYPE
    return member, data


main()
