"""How a guest starts a foreign program with its files, and collects what the program leaves.

Works with Python 3.8, as the interpreter of a container's image may be.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import signal
import stat
import tarfile
from collections.abc import Callable
from typing import IO, Any

_FORMAT_BYTES = 512
"""Size of a header in an archive."""


def unpack(file: IO[bytes], base: str, user: int) -> None:
    """Write the files of an archive below a folder."""
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            path, source = os.path.join(base, member.name), archive.extractfile(member)
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


def start(config: dict[str, Any], given: int, protect: Callable[[], None]) -> int:
    """Start the program, and return its process id.

    `protect` is called in its process: it takes rights away, and begins a session.
    """
    program = os.fork()
    if program:
        return program
    try:
        os.dup2(given, 0)
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        for number in signal.valid_signals():
            if signal.getsignal(number) == signal.SIG_IGN:  # by Python, or by what started the caller
                signal.signal(number, signal.SIG_DFL)
        for name, most in config["limits"].items():
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))
        protect()
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


def collect(result: IO[bytes], base: str, most: int) -> bool:
    """Write the files in a folder as an archive; return whether all of them are in it.

    What is neither a file, a folder, nor a link, and a file that does not fit, is a FIFO in the archive.
    """
    try:
        with tarfile.open(fileobj=result, mode="w:") as archive:
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
    needed = os.R_OK | (os.X_OK if stat.S_ISDIR(status.st_mode) else 0)
    if not stat.S_ISLNK(status.st_mode) and not os.access(path, needed):
        os.chmod(path, 0o700)  # where this process has the user of the program
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
