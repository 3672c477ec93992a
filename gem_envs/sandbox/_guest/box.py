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

import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.sandbox._guest import kernel
    from gem_envs.sandbox._guest.devices import WORK
    from gem_envs.sandbox._guest.foreign import (
        collect,
        make_folders,
        reap_others,
        signal_group,
        start,
        unpack,
    )
    from gem_envs.sandbox._guest.root import INSIDE_ID, attach, build_root, drop_rights, enter, mount_work
else:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from _guest import kernel
    from _guest.devices import WORK
    from _guest.foreign import collect, make_folders, reap_others, signal_group, start, unpack
    from _guest.root import INSIDE_ID, attach, build_root, drop_rights, enter, mount_work

    del sys.path[0]

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_GLANCE = 1.0
"""Number of seconds between two looks at processes that have ended."""


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
        program = start(config, given, lambda: protect(user))
        status = wait(control, program, config["grace"])
        with os.fdopen(result, "wb") as file:
            whole = collect(file, f"{WORK}/app", config["result_bytes"])
        tell(control, {"status": status, "whole": whole})
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
    with os.fdopen(files, "rb") as file:
        unpack(file, WORK, user)


def protect(user: int) -> None:
    kernel.no_new_privileges()  # before the filter, which needs it
    drop_rights(user, sockets=True)


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


main()
