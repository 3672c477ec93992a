"""`Mailbox`: tracks the running calls of a vector env and the results of its backend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from gem_core.errors import CallOrderError
from gem_core.vector._backend import Backend, SlotCall


class Mailbox:
    """Running calls and results that have not been taken yet.

    Any thread may wait for its own results. The first waiting thread collects the replies of the backend for
    all of them.

    Attributes:
        changed: Condition whose lock guards the other attributes. The lock is free while a thread waits.
        running: Indices of the slots with a running call.
        results: Results of finished calls by index, oldest first.
        waiting: Whether a thread is waiting for the backend.
        closed: Whether the vector env was closed.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.changed = threading.Condition()
        self.running: set[int] = set()
        self.results: dict[int, Any] = {}
        self.waiting = False
        self.closed = False
        self._abandoned: set[int] = set()  # slots with a call whose caller was interrupted

    def start(self, calls: Sequence[SlotCall], *, batch: bool) -> None:
        """Submit calls to the backend. The caller must hold the lock."""
        self.running.update(index for index, _, _ in calls)
        self._backend.submit(calls, batch=batch)

    def finish(self, indices: Sequence[int]) -> list[Any]:
        """Wait for the calls on these slots and take their results."""
        try:
            self.wait_for(lambda: self.running.isdisjoint(indices), None)
        except BaseException:  # such as Ctrl-C: these results will not be requested
            with self.changed:
                self._abandoned.update(self.running.intersection(indices))
                for index in indices:
                    self.results.pop(index, None)
            raise
        with self.changed:
            return [self.results.pop(index) for index in indices]

    def settle(self) -> None:
        """Wait for the calls whose caller was interrupted, which frees their slots."""
        if self._abandoned:
            self.wait_for(lambda: not self._abandoned, None)

    def wait_for(self, enough: Callable[[], bool], timeout: float | None) -> None:
        """Collect replies until `enough` returns True or the timeout expires. The lock must be free.

        Raises:
            CallOrderError: The vector env was closed in the meantime.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            at_once = enough() or (timeout is not None and timeout <= 0)
            if at_once and not self.waiting:
                self._collect(0.0)  # take the replies that are ready
            while not enough():
                self.check_open()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                if self.waiting:
                    self.changed.wait(left)
                else:
                    self._collect(left)
            self.check_open()

    def check_open(self) -> None:
        """Raise `CallOrderError` once the vector env is closed."""
        if self.closed:
            raise CallOrderError("the vector env is closed; create a new one")

    def _collect(self, timeout: float | None) -> None:
        self.waiting = True
        self.changed.release()
        try:
            replies = self._backend.wait(timeout)
        finally:
            self.changed.acquire()
            self.waiting = False
            self.changed.notify_all()
        for index, result in replies:
            self.running.discard(index)
            if index in self._abandoned:
                self._abandoned.remove(index)
            else:
                self.results[index] = result
