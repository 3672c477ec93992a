"""System calls that attacks need and programs do not; `kernel` and `container` block them."""

from __future__ import annotations

# Name, number on x86_64, number on aarch64. They reach the network, other processes, mounts, new namespaces,
# the kernel itself, and memory that no limit of a process counts.
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
    ("acct", 163, 89), ("quotactl", 179, 60), ("syslog", 103, 116), ("memfd_create", 319, 279),
    ("memfd_secret", 447, 447), ("shmget", 29, 194),
)  # fmt: skip

NEW_NAMESPACES = 0x7E020000
"""Flags of ``clone`` that create namespaces."""
