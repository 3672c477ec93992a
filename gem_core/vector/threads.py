"""The thread backend: a bounded pool, for environments that wait for something."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gem_core.core import Env
from gem_core.vector.backend import GRACE, Call, Reply, WorkerBackend, build_slots
from gem_core.vector.slot import Slot, SlotPlan

_Job: TypeAlias = tuple[Slot, Call]


class ThreadBackend(WorkerBackend):
    """Threads that take the next call, whatever slot it is for.

    A thread cannot be killed. One that is hung past the time-out is abandoned together with its
    slot: another thread takes its place, and should it ever come back it closes its environment
    and ends. It does not keep the interpreter from exiting.
    """

    name = "thread"

    def __init__(
        self, plans: Sequence[SlotPlan], probes: Mapping[int, Env], timeout: float | None, workers: int
    ) -> None:
        super().__init__(plans, timeout)
        self._slots: list[Slot | None] = [*build_slots(plans, probes)]
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        # guards _slots and _running: a call is either delivered or abandoned, never both
        self._lock = threading.Lock()
        # index of the slot: when its call began, and in which thread
        self._running: dict[int, tuple[float, threading.Thread]] = {}
        self._threads: list[threading.Thread] = []
        for _ in range(workers):
            self._start_thread()

    def submit(self, calls: Sequence[Call], *, batch: bool) -> None:
        self._begin(calls)
        self._enqueue(calls)

    def wait(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                while (reply := self._done.get_nowait()) is not None:
                    self._finish(*reply)
                return []  # closed
            except queue.Empty:
                pass
            self._abandon_overdue()
            now = time.monotonic()
            if self._replies or (end is not None and now >= end):
                return self._take()
            try:
                reply = self._done.get(timeout=self._time_to_wait(end, now))
            except queue.Empty:
                continue
            if reply is None:
                return []
            self._finish(*reply)

    def close(self) -> None:
        try:
            while True:
                self._jobs.get_nowait()
        except queue.Empty:
            pass
        for _ in self._threads:
            self._jobs.put(None)
        end = time.monotonic() + GRACE
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        with self._lock:
            idle = [slot for i, slot in enumerate(self._slots) if slot and i not in self._running]
            self._slots = [None] * len(self._slots)
        for slot in idle:
            slot.close()
        self._done.put(None)

    # -- parts --------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"gem-env-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            slot, (index, method, args) = job
            with self._lock:
                self._running[index] = (time.monotonic(), threading.current_thread())
            result = slot.call(method, args)
            with self._lock:
                abandoned = self._slots[index] is not slot
                if not abandoned:
                    del self._running[index]
                    self._done.put((index, result))
            if abandoned:
                slot.close()
                return

    def _enqueue(self, calls: Sequence[Call]) -> None:
        for call in calls:
            slot = self._slots[call[0]]
            if slot is not None:  # None once closed
                self._jobs.put((slot, call))

    def _time_to_wait(self, end: float | None, now: float) -> float | None:
        """Until `end` or the first call that may be overdue by then; None is without limit.

        A call that starts later than now is overdue later than ``now + timeout``.
        """
        ends = [] if end is None else [end]
        if self._timeout is not None:
            with self._lock:
                ends.append(min((since for since, _ in self._running.values()), default=now) + self._timeout)
        return max(0.0, min(ends) - now) if ends else None

    def _abandon_overdue(self) -> None:
        if self._timeout is None:
            return
        now = time.monotonic()
        with self._lock:
            overdue = [i for i, (since, _) in self._running.items() if now >= since + self._timeout]
            for index in overdue:
                self._threads.remove(self._running.pop(index)[1])
                self._slots[index] = None
        for index in overdue:
            repeat = self._lose([index], f"TimeoutError: no result within {self._timeout:g} s")
            self._slots[index] = Slot(self._plans[index])
            self._start_thread()
            self._enqueue(repeat)
