"""System calls of Linux for which Python has no functions, through libc."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.sandbox._guest.denied import ABSENT, CONDITIONAL, DENIED, NEWEST, SOCKETS
else:
    from _guest.denied import (
        ABSENT,
        CONDITIONAL,
        DENIED,
        NEWEST,
        SOCKETS,
    )  # `server` puts the parent folder on the path

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
_PR_SET_DUMPABLE, _PR_SET_THP_DISABLE = 4, 41

_ARCHITECTURES = {"x86_64": (0xC000003E, 1), "aarch64": (0xC00000B7, 2)}
"""Audit number of the architecture, and its column in `denied`."""
_LOAD, _AND, _EQUAL, _ABOVE, _LEAST, _SET, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x35, 0x45, 0x06
_DENY, _NO_SUCH_CALL, _ALLOW = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x7FFF0000
_OUT = -1
"""Target of a jump behind the rule."""

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


def _filter(sockets: bool = False) -> tuple[bytes, Any] | None:
    """Return the BPF header of `filter_calls` and the program it points to; None on other processors."""
    if platform.machine() not in _ARCHITECTURES:
        return None
    audit, column = _ARCHITECTURES[platform.machine()]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _DENY), (_LOAD, 0, 0, 0)]
    if column == 1:  # the x32 numbers of x86_64 reach the same calls
        program += [(_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _DENY)]
    program += [(_ABOVE, 0, 1, NEWEST), (_RETURN, 0, 0, _NO_SUCH_CALL)]
    for rows, result in ((DENIED, _DENY), (ABSENT, _NO_SUCH_CALL)):
        for name, *numbers in rows:
            number = numbers[column - 1]
            if number is not None and not (sockets and name == "socket"):
                program += [(_EQUAL, 0, 1, int(number)), (_RETURN, 0, 0, result)]
    for rule in (*CONDITIONAL, *(SOCKETS if sockets else ())):
        steps = [step for test in rule.tests for step in _test(*test)]
        steps = [*steps, (_RETURN, 0, 0, _DENY)]
        # A test that is false jumps behind the rule, where the number of the call is loaded again.
        for at, (operation, yes, no, value) in enumerate(steps):
            after = len(steps) - at - 1
            steps[at] = operation, after if yes == _OUT else yes, after if no == _OUT else no, value
        number = rule.x86_64 if column == 1 else rule.aarch64
        program += [(_EQUAL, 0, len(steps) + 1, number), *steps, (_LOAD, 0, 0, 0)]
    program += [(_RETURN, 0, 0, _ALLOW)]
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    return struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer)), buffer


def _test(argument: int, how: str, value: int) -> list[tuple[int, int, int, int]]:
    """Return the steps that go on if the test is true and otherwise jump to `_OUT`."""
    low = 16 + 8 * argument
    load = (_LOAD, 0, 0, low)
    if how == "any":
        return [load, (_SET, 0, _OUT, value)]
    if how == "all":
        return [load, (_AND, 0, 0, value), (_EQUAL, 0, _OUT, value)]
    if how == "is":
        return [load, (_EQUAL, 0, _OUT, value)]
    if how == "not":
        return [load, (_EQUAL, _OUT, 0, value)]
    # Arguments have 64 bits: one whose high half is not 0 is above.
    return [(_LOAD, 0, 0, low + 4), (_EQUAL, 0, 2, 0), load, (_ABOVE, 0, _OUT, value)]


# Built once, in the fork server, so that no child has to build it again.
_FILTERS = {sockets: _filter(sockets) for sockets in (False, True)}
_NO_CAPABILITIES = struct.pack("Ii", 0x20080522, 0), bytes(24)
_capset, _prctl = _libc.capset, _libc.prctl


def drop_capabilities() -> None:
    if _capset(*_NO_CAPABILITIES):
        raise OSError(ctypes.get_errno(), "capset")


def no_huge_pages() -> None:
    """Give this process and its children small pages only: a huge page stays whole if a part is unmapped."""
    _prctl(_PR_SET_THP_DISABLE, ctypes.c_ulong(1), 0, 0, 0)


def filter_calls(sockets: bool = False) -> bool:
    """Block the calls in `denied`; return False if the kernel or the processor has no support for filters.

    With `sockets`, a process may open those of `denied.SOCKETS`.
    """
    found = _FILTERS[sockets]
    return found is not None and bool(_prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), found[0], 0, 0) == 0)


def hide_memory() -> None:
    """Keep processes of the same user from reading the memory and the open files of this one."""
    _prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
