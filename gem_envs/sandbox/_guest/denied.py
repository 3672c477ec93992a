"""System calls that attacks need and programs do not; `kernel` and `container` refuse them.

Each row has the name and the numbers on x86_64 and aarch64. The documentation of the sandbox lists the kinds
of kernel objects and what bounds each of them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# These fail with EPERM. They reach the network, other processes, mounts, new namespaces, the kernel, and
# memory that no limit of a process counts: shared memory, semaphores, queues, keys, memory policies.
DENIED = (
    ("socket", 41, 198), ("ptrace", 101, 117), ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271), ("pidfd_getfd", 438, 438), ("kcmp", 312, 272),
    ("mount", 165, 40), ("umount2", 166, 39), ("pivot_root", 155, 41), ("chroot", 161, 51),
    ("open_tree", 428, 428), ("move_mount", 429, 429), ("fsopen", 430, 430), ("fsconfig", 431, 431),
    ("fsmount", 432, 432), ("fspick", 433, 433), ("mount_setattr", 442, 442), ("unshare", 272, 97),
    ("setns", 308, 268), ("keyctl", 250, 219), ("add_key", 248, 217), ("request_key", 249, 218),
    ("bpf", 321, 280), ("perf_event_open", 298, 241), ("userfaultfd", 323, 282),
    ("io_uring_setup", 425, 425), ("io_uring_enter", 426, 426), ("io_uring_register", 427, 427),
    ("open_by_handle_at", 304, 265), ("name_to_handle_at", 303, 264), ("kexec_load", 246, 104),
    ("kexec_file_load", 320, 294), ("init_module", 175, 105), ("finit_module", 313, 273),
    ("delete_module", 176, 106), ("reboot", 169, 142), ("swapon", 167, 224), ("swapoff", 168, 225),
    ("acct", 163, 89), ("quotactl", 179, 60), ("quotactl_fd", 443, 443), ("syslog", 103, 116),
    ("memfd_create", 319, 279), ("memfd_secret", 447, 447), ("shmget", 29, 194), ("semget", 64, 190),
    ("msgget", 68, 186), ("mq_open", 240, 180), ("mbind", 237, 235), ("set_mempolicy", 238, 237),
    ("set_mempolicy_home_node", 450, 450), ("migrate_pages", 256, 238), ("move_pages", 279, 239),
)  # fmt: skip

# These fail with ENOSYS, as in an old kernel, because programs then do without: libc calls clone instead of
# clone3, shutil copies without sendfile, tail polls without inotify. A pipe or socket that refers to pages of
# a program or a file keeps them after they were unmapped or truncated; queues of events have no limit.
ABSENT = (
    ("clone3", 435, 435), ("splice", 275, 76), ("tee", 276, 77), ("vmsplice", 278, 75), ("sendfile", 40, 71),
    ("inotify_init", 253, None), ("inotify_init1", 294, 26), ("fanotify_init", 300, 262),
    ("io_setup", 206, 0),
    ("landlock_create_ruleset", 444, 444), ("landlock_add_rule", 445, 445),
    ("landlock_restrict_self", 446, 446),
)  # fmt: skip

NEWEST = 462
"""The newest call whose effect is known, mseal; those with higher numbers do not exist for a program."""

NEW_NAMESPACES = 0x7E020000
"""Flags of ``clone`` that create namespaces."""


class DeniedCall(NamedTuple):
    """A call that fails with EPERM if all of the tests are true."""

    name: str
    x86_64: int
    aarch64: int
    tests: tuple[tuple[int, Literal["any", "all", "is", "not", "above"], int], ...]
    """Index of the argument; comparison (any or all bits of a mask; equal; unequal; greater); value."""


_SOL_SOCKET, _BUFFERS = 1, (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE
_SHARED_ANONYMOUS, _PAGE = 0x21, 4096
CONDITIONAL = (
    DeniedCall("clone", 56, 220, ((0, "any", NEW_NAMESPACES),)),
    # Unmapping a part of it leaves the memory of that part, but no longer counts it.
    DeniedCall("mmap", 9, 222, ((3, "all", _SHARED_ANONYMOUS), (1, "above", _PAGE))),
    DeniedCall("fcntl", 72, 25, ((1, "is", 1031),)),  # F_SETPIPE_SZ
    *(DeniedCall("setsockopt", 54, 208, ((1, "is", _SOL_SOCKET), (2, "is", kind))) for kind in _BUFFERS),
    DeniedCall("socketpair", 53, 199, ((0, "not", 1),)),  # AF_UNIX
    DeniedCall("prctl", 157, 167, ((0, "is", 78),)),  # PR_FUTEX_HASH allocates a table of any size
    DeniedCall("prctl", 157, 167, ((0, "is", 41),)),  # PR_SET_THP_DISABLE, which the sandbox has set
    DeniedCall("prlimit64", 302, 261, ((0, "not", 0),)),  # the limits of another process
)
_NETLINK, _KINDS = 16, (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
SOCKETS = (
    DeniedCall("socket", 41, 198, tuple((0, "not", kind) for kind in _KINDS)),
    DeniedCall("socket", 41, 198, ((0, "is", _NETLINK), (2, "not", 0))),  # all but the list of addresses
)
"""Sockets that a program with a network of its own may not open."""
