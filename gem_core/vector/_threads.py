"""The thread backend: a bounded pool, for environments that wait for external results."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Mapping, Sequence

from gem_core._core import Env
from gem_core._util.places import Clock, GivenUp, on_clock
from gem_core._util.threads import PoolCall, ThreadPool
from gem_core.vector._backend import GRACE, LossyBackend, SlotCall, SlotReply, build_slots
from gem_core.vector._slot import Slot, SlotPlan


class ThreadBackend(LossyBackend):
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
        # guards _slots and _clocks: a call is either delivered or abandoned, never both
        self._lock = threading.Lock()
        self._clocks: dict[int, Clock] = {}  # of the running calls, by index of the slot
        self._pool_calls: dict[int, PoolCall] = {}  # the last calls, by index of the slot

    def submit(self, calls: Sequence[SlotCall], *, batch: bool) -> None:
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
            idle = [slot for i, slot in enumerate(self._slots) if slot and i not in self._clocks]
            self._slots = [None] * len(self._slots)
        for slot in idle:
            slot.close()
        self._done.put(None)

    # -- parts --------------------------------------------------------------------------------

    def _call(self, slot: Slot, call: SlotCall) -> None:
        """Run a call in a thread and deliver the result, unless the slot was abandoned meanwhile."""
        index, method, args = call
        clock = Clock()
        with self._lock:
            self._clocks[index] = clock
        result = None
        with contextlib.suppress(GivenUp), on_clock(clock):
            result = slot.call(method, args)
        with self._lock:
            abandoned = self._slots[index] is not slot
            if not abandoned:
                del self._clocks[index]
                self._done.put((index, result))
        if abandoned:
            slot.close()

    def _enqueue(self, calls: Sequence[SlotCall]) -> None:
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
                left = [clock.left(self._timeout) for clock in self._clocks.values()]
            ends.append(now + min(left, default=self._timeout))
        return max(0.0, min(ends) - now) if ends else None

    def _abandon_overdue(self) -> None:
        if self._timeout is None:
            return
        with self._lock:
            overdue = [i for i, clock in self._clocks.items() if clock.seconds >= self._timeout]
            clocks = [self._clocks.pop(i) for i in overdue]
            for index in overdue:
                self._slots[index] = None
        for clock in clocks:
            clock.give_up()
        for index in overdue:
            self._pool.abandon(self._pool_calls[index])
            repeat = self._lose([index], f"TimeoutError: no result within {self._timeout:g} s")
            self._slots[index] = Slot(self._plans[index])
            self._enqueue(repeat)
