"""System calls of Linux for which Python has no functions, through libc."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_core.sandbox.guest.denied import DENIED, NEW_NAMESPACES
else:
    from guest.denied import DENIED, NEW_NAMESPACES  # `server` puts the parent folder on the path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 0x1, 0x2, 0x4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 24, 22, 38

_ARCHITECTURES = {"x86_64": (0xC000003E, 1, 56), "aarch64": (0xC00000B7, 2, 220)}
_CLONE3, _EPERM, _ENOSYS = 435, 1, 38

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def unshare(flags: int) -> None:
    """Move this process into new namespaces of the kinds in `flags`."""
    _call("unshare", ctypes.c_int(flags))


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace behind a descriptor. A pid namespace applies only to processes forked later."""
    _call("setns", ctypes.c_int(descriptor), ctypes.c_int(kind))


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    _call(
        "mount", _bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(options)
    )  # fmt: skip


def protect(target: str, attributes: int) -> None:
    """Set mount attributes on `target` and on every mount below it (needs Linux 5.12)."""
    request = struct.pack("QQQQ", attributes, 0, 0, 0)
    _call(
        "syscall", ctypes.c_long(442), ctypes.c_long(_AT_FDCWD), _bytes(target),
        ctypes.c_long(_AT_RECURSIVE), request, ctypes.c_long(len(request)),
    )  # fmt: skip


def enter_root(path: str) -> None:
    """Make `path` the root of this process and detach the old root."""
    os.chdir(path)
    number = {"x86_64": 155, "aarch64": 41}[platform.machine()]
    _call("syscall", ctypes.c_long(number), b".", b".")
    _call("umount2", b".", ctypes.c_int(MNT_DETACH))
    os.chdir("/")


def die_with_parent() -> None:
    _call("prctl", ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(9), ctypes.c_ulong(0), 0, 0)


def no_new_privileges() -> None:
    """Permanently prevent this process and its children from gaining privileges through ``exec``."""
    _call("prctl", ctypes.c_int(_PR_SET_NO_NEW_PRIVS), ctypes.c_ulong(1), 0, 0, 0)
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) == 0:
        number += 1


def _filter() -> tuple[bytes, Any] | None:
    """Return the BPF header of `filter_calls` and the program it points to; None on other processors."""
    if platform.machine() not in _ARCHITECTURES:
        return None
    audit, column, clone = _ARCHITECTURES[platform.machine()]
    load, jump_equal, jump_least, jump_set, result = 0x20, 0x15, 0x35, 0x45, 0x06
    deny, allow = 0x00050000 | _EPERM, 0x7FFF0000
    program = [(load, 0, 0, 4), (jump_equal, 1, 0, audit), (result, 0, 0, deny), (load, 0, 0, 0)]
    if column == 1:  # the x32 numbers of x86_64 reach the same calls
        program += [(jump_least, 0, 1, 0x40000000), (result, 0, 0, deny)]
    for _, *numbers in DENIED:
        program += [(jump_equal, 0, 1, int(numbers[column - 1])), (result, 0, 0, deny)]
    program += [(jump_equal, 0, 1, _CLONE3), (result, 0, 0, 0x00050000 | _ENOSYS)]  # libc falls back to clone
    program += [(jump_equal, 0, 3, clone), (load, 0, 0, 16), (jump_set, 0, 1, NEW_NAMESPACES)]
    program += [(result, 0, 0, deny), (result, 0, 0, allow)]
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    return struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer)), buffer


# Built once, in the fork server, so that no child has to build it again.
_FILTER = _filter()
_NO_CAPABILITIES = struct.pack("Ii", 0x20080522, 0), bytes(24)
_capset, _prctl = _libc.capset, _libc.prctl


def drop_capabilities() -> None:
    if _capset(*_NO_CAPABILITIES):
        raise OSError(ctypes.get_errno(), "capset")


def filter_calls() -> bool:
    """Block the calls in `denied`; return False if the kernel or the processor has no support for filters."""
    return _FILTER is not None and bool(_prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), _FILTER[0], 0, 0) == 0)
