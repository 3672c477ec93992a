"""A stand-in for a container engine: runs the guest in namespaces, on the programs of this machine.

    python stand_in_engine.py STATE PYTHON run --name NAME [options] IMAGE python3 -I -c CODE

It knows one image. STATE is a folder with a file for each container that runs; PYTHON is its python3.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
from pathlib import Path

IMAGE = "agents:1"
VARIABLES = {"PATH": os.defpath, "FROM_IMAGE": "1", "HTTPS_PROXY": "http://secret@proxy"}
_BIND, _RECURSIVE = 0x1000, 0x4000


def main() -> int:
    state, python, word, *rest = sys.argv[1:]
    if word == "run":
        name = rest[rest.index("--name") + 1] if "--name" in rest else "check"
        at = rest.index("python3")
        if "--memory" in rest or rest[at - 1] != IMAGE:
            print(f"Error: {rest[at - 1]}: image not known", file=sys.stderr)
            return 125
        volume = rest[rest.index("--volume") + 1] if "--volume" in rest else ""
        Path(state, name).write_text(str(os.getpid()))
        names = ["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = [sys.executable, __file__, state, python, "inside", name, volume, python, *rest[at + 1 :]]
        with Path(state, "log").open("a") as file:
            file.write(" ".join(rest[: at - 1]) + "\n")
        ended = os.spawnvp(os.P_WAIT, "unshare", ["unshare", *names, *inside])
        Path(state, name).unlink(missing_ok=True)
        return ended if ended >= 0 else 137
    if word == "inside":
        enter(rest[1])
        os.execve(rest[2], rest[2:], VARIABLES)
    if word == "rm" and (file := Path(state, rest[1])).exists():
        os.killpg(int(file.read_text()), signal.SIGKILL)
        file.unlink(missing_ok=True)
    if word == "--version":
        print("stand-in engine 1")
    return 0


def mount(source: str, target: Path, kind: str = "", flags: int = _BIND | _RECURSIVE) -> None:
    if ctypes.CDLL(None, use_errno=True).mount(
        source.encode(), os.fsencode(target), kind.encode(), flags, None
    ):
        raise OSError(ctypes.get_errno(), f"{target} cannot be mounted")


def enter(volume: str) -> None:
    """Enter a root folder of this machine's folders and of those that the engine was asked for."""
    with socket.socket() as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 1))  # the loopback device is up
    root = Path("/mnt")
    mount("tmpfs", root, "tmpfs", 0)
    for name in os.listdir("/"):
        if os.path.isdir(f"/{name}") and name not in ("mnt", "app", "gem-home"):
            (root / name).mkdir()
            mount(f"/{name}", root / name)
    for name in ("app", "gem-home"):
        (root / name).mkdir()
    if volume:
        source, _, target = volume.partition(":")
        (root / target[1:]).touch()
        mount(source, root / target[1:])
    os.chroot(root)
    os.chdir("/app")


if __name__ == "__main__":
    sys.exit(main())
