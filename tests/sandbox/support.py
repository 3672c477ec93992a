"""Helpers shared by the tests of the sandbox."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gem_envs.sandbox import self_check

needs_namespace = pytest.mark.skipif(
    not self_check()["namespace"].available, reason=self_check()["namespace"].reason
)


def children(pid: int) -> list[int]:
    """Return all descendants of a process; none if it has ended."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for task in tasks:
        try:
            below = [int(word) for word in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        except OSError:
            continue
        for child in below:
            found += [child, *children(child)]
    return found


def name(pid: int) -> str:
    """Return the name that a process gave itself, or "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def settles(condition, seconds: float = 20.0) -> bool:
    """Return whether `condition` becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
