"""What a forked child needs: locks that are free, and nothing that belongs to the threads of its parent.

Only the thread that forks runs on in the child. A lock that another thread held would be held forever.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Forkable(Protocol):
    """An object with a state that belongs to its process."""

    def forget_parent(self) -> None:
        """Give the object the state of a new one, in a forked child. Must not wait for anything."""


def after_fork(reset: Callable[[], None]) -> None:
    """Call `reset` in every forked child."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=reset)


def renew_after_fork(thing: Forkable) -> None:
    """Call ``thing.forget_parent()`` in every forked child, as long as the object exists."""
    _things.add(thing)


class ForkSafeLock:
    """A lock, used in a ``with`` statement, that is free in a forked child.

    Args:
        reentrant: Whether the thread that holds the lock can take it again.
    """

    def __init__(self, *, reentrant: bool = False) -> None:
        self._new: Callable[[], Any] = threading.RLock if reentrant else threading.Lock
        self._held: list[Any] = []
        self.forget_parent()
        renew_after_fork(self)

    def __enter__(self) -> None:
        lock = self._lock
        lock.acquire()
        self._held.append(lock)

    def __exit__(self, *_: object) -> None:
        self._held.pop().release()  # the lock of the parent, if the thread forked while it held it

    def forget_parent(self) -> None:
        self._lock = self._new()


_things: weakref.WeakSet[Forkable] = weakref.WeakSet()


def _renew() -> None:
    for thing in list(_things):
        thing.forget_parent()


after_fork(_renew)
