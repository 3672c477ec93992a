"""The thread backend: a bounded pool, for environments that wait for external results."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence

from gem_core._util.threads import PoolCall, ThreadPool
from gem_core.core import Env
from gem_core.vector.backend import GRACE, Call, SlotReply, WorkerBackend, build_slots
from gem_core.vector.slot import Slot, SlotPlan


class ThreadBackend(WorkerBackend):
    """Runs each call in the next free thread, whichever slot it belongs to.

    A thread cannot be killed. If a call exceeds the time limit, its thread and slot are abandoned and
    replaced by new ones. If the call ever returns, its thread closes the environment and ends. Threads do not
    keep the interpreter from exiting.
    """

    name = "thread"

    def __init__(
        self, plans: Sequence[SlotPlan], probes: Mapping[int, Env], timeout: float | None, workers: int
    ) -> None:
        super().__init__(plans, timeout)
        self._slots: list[Slot | None] = [*build_slots(plans, probes)]
        self._pool = ThreadPool(workers, "gem-env")
        self._done: queue.SimpleQueue[SlotReply | None] = queue.SimpleQueue()
        # guards _slots and _began: a call is either delivered or abandoned, never both
        self._lock = threading.Lock()
        self._began: dict[int, float] = {}  # start time of each running call, by index of the slot
        self._pool_calls: dict[int, PoolCall] = {}  # the last calls, by index of the slot

    def submit(self, calls: Sequence[Call], *, batch: bool) -> None:
        self._begin(calls)
        self._enqueue(calls)

    def wait(self, timeout: float | None) -> list[SlotReply]:
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

    def envs(self) -> list[Env | None]:
        return [None if slot is None else slot.env for slot in self._slots]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True, timeout=GRACE)
        with self._lock:
            idle = [slot for i, slot in enumerate(self._slots) if slot and i not in self._began]
            self._slots = [None] * len(self._slots)
        for slot in idle:
            slot.close()
        self._done.put(None)

    # -- parts --------------------------------------------------------------------------------

    def _call(self, slot: Slot, call: Call) -> None:
        """Run a call in a thread and deliver the result, unless the slot was abandoned meanwhile."""
        index, method, args = call
        with self._lock:
            self._began[index] = time.monotonic()
        result = slot.call(method, args)
        with self._lock:
            abandoned = self._slots[index] is not slot
            if not abandoned:
                del self._began[index]
                self._done.put((index, result))
        if abandoned:
            slot.close()

    def _enqueue(self, calls: Sequence[Call]) -> None:
        for call in calls:
            slot = self._slots[call[0]]
            if slot is not None:  # None after close()
                pool_call = self._pool_calls[call[0]] = PoolCall(self._call, slot, call)
                self._pool.start(pool_call)

    def _time_to_wait(self, end: float | None, now: float) -> float | None:
        """Return the seconds until `end` or until a call may be overdue; None means no limit.

        A call that starts later than now is overdue later than ``now + timeout``.
        """
        ends = [] if end is None else [end]
        if self._timeout is not None:
            with self._lock:
                ends.append(min(self._began.values(), default=now) + self._timeout)
        return max(0.0, min(ends) - now) if ends else None

    def _abandon_overdue(self) -> None:
        if self._timeout is None:
            return
        now = time.monotonic()
        with self._lock:
            overdue = [i for i, began in self._began.items() if now >= began + self._timeout]
            for index in overdue:
                del self._began[index]
                self._slots[index] = None
        for index in overdue:
            self._pool.abandon(self._pool_calls[index])
            repeat = self._lose([index], f"TimeoutError: no result within {self._timeout:g} s")
            self._slots[index] = Slot(self._plans[index])
            self._enqueue(repeat)
