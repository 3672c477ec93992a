"""The root folder of programs at level `namespace`, and the end of their privileges."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.sandbox._guest import kernel
    from gem_envs.sandbox._guest.devices import WORK
else:
    from _guest import kernel
    from _guest.devices import WORK

INSIDE_ID = 1000
"""User and group id of the server. If a range of ids is mapped, each child gets a different id above it."""

DEVICES = ("null", "full", "random", "urandom")
ZEROS = 2**62
"""Size of ``/dev/zero`` in bytes: a file of holes, because no limit counts memory mapped from the device."""


TERMINALS = "newinstance,ptmxmode=0666,mode=0600,max=64"
"""Options of the pseudo-terminals, which the shell tools of some agents open."""


def enter(control: socket.socket, isolated: bool = True) -> int:
    """Go on as the first process of new namespaces, for which the launcher waits.

    Returns:
        Number of ids that the caller was able to map; 0 if it is not root, whose own become `INSIDE_ID`.
    """
    user, group = os.geteuid(), os.getegid()
    if isolated:
        namespaces = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWUTS | namespaces)
    control.send(b"{}")
    ids = int(json.loads(control.recv(100))["ids"])
    if isolated and not ids:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{INSIDE_ID} {user} 1")
        write("/proc/self/gid_map", f"{INSIDE_ID} {group} 1")
    pid = os.fork()
    if pid:
        control.close()
        os.waitpid(pid, 0)
        os._exit(0)
    return ids


def build_root(config: dict[str, Any]) -> None:
    """Build a root folder in memory that holds what a program needs to read, and nothing it could write."""
    base = config["mount_point"]
    sources = [
        (os.open(source, os.O_PATH), os.path.isdir(source), inside) for source, inside in config["bind"]
    ]
    devices = [(os.open(f"/dev/{name}", os.O_PATH), False, f"/dev/{name}") for name in DEVICES]
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", base, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for path in (WORK, "/dev", "/etc", *config.get("folders", ())):
        os.makedirs(base + path, exist_ok=True)
    for path, text in config.get("texts", {}).items():
        write(base + path, text)
    for link, target in config["links"]:
        os.makedirs(os.path.dirname(base + link), exist_ok=True)
        os.symlink(target, base + link)
    for descriptor, folder, inside in sources + devices:
        attach(descriptor, folder, base + inside)
        if not inside.startswith("/dev/"):
            kernel.protect(base + inside, kernel.ATTR_NODEV)
    with open(f"{base}/dev/zero", "wb") as zeros:
        zeros.truncate(ZEROS)
    if config.get("processes"):
        kernel.mount("proc", f"{base}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
        kernel.mount("devpts", f"{base}/dev/pts", "devpts", kernel.MS_NOSUID, TERMINALS)
    kernel.protect(base, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID)
    kernel.enter_root(base)


def attach(descriptor: int, folder: bool, target: str) -> None:
    """Mount the file or folder behind a descriptor at `target`, and close the descriptor."""
    os.makedirs(target if folder else os.path.dirname(target), exist_ok=True)
    if not folder:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(f"/proc/self/fd/{descriptor}", target, None, kernel.MS_BIND | kernel.MS_REC)
    os.close(descriptor)


def mount_work(user: int, config: dict[str, Any]) -> None:
    """Mount the writable folder of `user`, in memory, and enter it."""
    size = f"size={config['disk_bytes']},nr_inodes={config['files']}"
    options = f"{size},uid={user},gid={user},mode=700"
    kernel.mount("tmpfs", WORK, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    os.chdir(WORK)


def drop_rights(user: int, sockets: bool = False) -> None:
    """Drop the server's privileges, so that breaking out of Python gains nothing afterwards.

    With `sockets`, the program may use the network, which has no other machine.
    """
    if user != INSIDE_ID:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.drop_capabilities()
    kernel.no_huge_pages()
    os.setsid()
    kernel.filter_calls(sockets)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
