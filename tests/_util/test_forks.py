"""A forked child can use what other threads of its parent held at the fork."""

from __future__ import annotations

import ast
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import gem_core
from gem_core._util.forks import ForkSafeLock, renew_after_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(work: Callable[[], object]) -> bool:
    """Return whether `work` returns something true in a forked child, within ten seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def take(lock: ForkSafeLock) -> bool:
    with lock:
        return True


def take_twice(lock: ForkSafeLock) -> bool:
    with lock, lock:
        return True


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_lock_that_another_thread_held_is_free(reentrant: bool) -> None:
    lock = ForkSafeLock(reentrant=reentrant)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    try:
        assert in_child(lambda: (take_twice if reentrant else take)(lock) and take(lock))
    finally:
        done.set()
        thread.join()
    assert take(lock)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_child_leaves_the_lock_that_its_parent_took(reentrant: bool) -> None:
    lock = ForkSafeLock(reentrant=reentrant)

    def work() -> bool:
        with lock:
            if not in_child_of(lock):
                return False
        return take(lock)

    def in_child_of(lock: ForkSafeLock) -> bool:
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            return take(lock)  # leaves the block of the parent as well
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    assert in_child(work)


def test_two_threads_never_hold_a_lock_together() -> None:
    lock, counts = ForkSafeLock(), [0]

    def count() -> None:
        for _ in range(1000):
            with lock:
                before = counts[0]
                counts[0] = before + 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [4000]


def test_an_object_forgets_what_belongs_to_the_parent() -> None:
    class Thing:
        forgot = False

        def forget_parent(self) -> None:
            self.forgot = True

    thing = Thing()
    renew_after_fork(thing)
    assert in_child(lambda: thing.forgot)
    assert not thing.forgot


def locks_of_modules() -> list[str]:
    """Return the locks of `threading` that belong to modules and classes, and so to the whole process."""
    found = []
    root = Path(gem_core.__file__).parent
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
        for statement in (statement for body in bodies for statement in body):
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Call):
                name = ast.unparse(value.func)
                if name in {f"threading.{kind}" for kind in KINDS}:
                    found.append(f"{path.relative_to(root)}: {ast.unparse(statement)}")
    return found


KINDS = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier")


def test_no_lock_of_the_process_stays_held_in_a_child() -> None:
    assert locks_of_modules() == ["_util/places.py: _lock = threading.RLock()"]  # which resets it itself
