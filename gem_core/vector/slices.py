"""Base of the process and Ray backends, whose workers hold a slice of the slots each."""

from __future__ import annotations

import abc
import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gem_core._util.messages import error_line
from gem_core.errors import EnvError
from gem_core.vector.backend import Call, SlotReply, WorkerBackend, build_slots
from gem_core.vector.slot import Slot, SlotPlan


@dataclass(eq=False)
class Worker:
    """The state of a worker in the parent process.

    Attributes:
        name: Name for messages.
        indices: Indices of its slots.
        ready: Whether the worker has built its slots.
        pending: Indices of the slots with an unanswered call, oldest first.
        since: Time at which the worker began the oldest of these calls, in seconds of `time.monotonic`.
    """

    name: str
    indices: Sequence[int]
    ready: bool = field(default=False, init=False)
    pending: dict[int, None] = field(default_factory=dict, init=False)
    since: float = field(default=0.0, init=False)


WorkerType = TypeVar("WorkerType", bound=Worker)


@dataclass(frozen=True)
class Died:
    """Event: the worker has ended. `reason` completes a sentence that starts with its name."""

    reason: str


@dataclass(frozen=True)
class Ready:
    """Event: the worker has built its slots, or failed with `error` (None if it did not fail)."""

    error: BaseException | None = None


class SliceBackend(WorkerBackend, Generic[WorkerType]):
    """Distributes the slots over workers and replaces a worker that hangs or dies.

    All slots of such a worker are lost with it. The episode of each slot is cut, at the running step or at
    the next one, and the slot is rebuilt in a new worker. With ``max_workers=num_envs``, every slot has its
    own worker.

    A worker runs its calls one at a time, so a slow environment delays only the other environments in its
    slice.
    """

    _start_advice = ""
    """Advice in the error message if workers cannot start."""

    def __init__(self, plans: Sequence[SlotPlan], timeout: float | None, workers: int) -> None:
        super().__init__(plans, timeout)
        self._closing = threading.Event()
        self._waiting = threading.Lock()  # held by wait(), so that close() does not remove workers meanwhile
        self._state = threading.Lock()  # guards workers, so that submit() never uses one being replaced
        self._workers: list[WorkerType] = []
        try:
            # contiguous slices whose sizes differ by one at most
            bounds = [len(plans) * k // workers for k in range(workers + 1)]
            for k in range(workers):
                self._workers.append(self._start(range(bounds[k], bounds[k + 1])))
            while not all(worker.ready for worker in self._workers):
                self._handle(self._poll(None))
        except BaseException:
            self.close()
            raise
        self._holder = [k for k, worker in enumerate(self._workers) for _ in worker.indices]

    # -- implemented by subclasses ------------------------------------------------------------

    @abc.abstractmethod
    def _start(self, indices: Sequence[int]) -> WorkerType:
        """Start a worker for these slots, without waiting for it."""

    @abc.abstractmethod
    def _post(self, worker: WorkerType, calls: Sequence[Call], batch: bool) -> None:
        """Send calls to a worker; if it is dead, `_poll` reports it."""

    @abc.abstractmethod
    def _poll(self, timeout: float | None) -> list[tuple[WorkerType, list[SlotReply] | Ready | Died]]:
        """Wait for events of workers, for at most `timeout` seconds, and return them."""

    @abc.abstractmethod
    def _kill(self, worker: WorkerType) -> None:
        """Kill a worker."""

    @abc.abstractmethod
    def _stop(self, workers: Sequence[WorkerType]) -> None:
        """Wake a `wait` in another thread, and stop the workers.

        Workers have `GRACE` seconds to close their environments and end; then they are killed.
        """

    # -- Backend ------------------------------------------------------------------------------

    def submit(self, calls: Sequence[Call], *, batch: bool) -> None:
        slices: dict[int, list[Call]] = {}
        for call in calls:
            slices.setdefault(self._holder[call[0]], []).append(call)
        with self._state:
            self._begin(calls)
            for k, slice_calls in slices.items():
                self._give(self._workers[k], slice_calls, batch)

    def wait(self, timeout: float | None) -> list[SlotReply]:
        end = None if timeout is None else time.monotonic() + timeout
        with self._waiting:
            while not (self._replies or self._closing.is_set()):
                due = self._next_due()
                ends = [at for at in (end, due) if at is not None]
                events = self._poll(max(0.0, min(ends) - time.monotonic()) if ends else None)
                if self._closing.is_set():
                    return []
                now = time.monotonic()
                with self._state:
                    self._handle(events)
                    if not events and due is not None and now >= due:
                        self._replace_overdue(now)
                if end is not None and now >= end:
                    break
            return self._take()

    def close(self) -> None:
        self._closing.set()
        self._stop(self._workers)
        self._workers = []

    # -- parts --------------------------------------------------------------------------------

    def _give(self, worker: WorkerType, calls: Sequence[Call], batch: bool) -> None:
        if not worker.pending:
            worker.since = time.monotonic()
        worker.pending.update((index, None) for index, _, _ in calls)
        # with a time limit, replies are sent individually, because each starts the clock of the next call
        self._post(worker, calls, batch and self._timeout is None)

    def _handle(self, events: Sequence[tuple[WorkerType, list[SlotReply] | Ready | Died]]) -> None:
        for worker, event in events:
            if worker not in self._workers:  # replaced meanwhile
                continue
            worker.since = time.monotonic()
            if isinstance(event, Ready):
                if event.error is not None:
                    raise event.error
                worker.ready = True
            elif isinstance(event, Died):
                message = f"{worker.name} {event.reason}"
                if not worker.ready:
                    raise EnvError(f"{message} before it was ready{self._start_advice}")
                self._replace(worker, f"WorkerDied: {message}")
            else:
                for index, result in event:
                    del worker.pending[index]
                    self._finish(index, result)

    def _next_due(self) -> float | None:
        if self._timeout is None:
            return None
        with self._state:
            since = [worker.since for worker in self._workers if worker.ready and worker.pending]
        return min(since) + self._timeout if since else None

    def _replace_overdue(self, now: float) -> None:
        assert self._timeout is not None
        for worker in list(self._workers):
            if worker.ready and worker.pending and now >= worker.since + self._timeout:
                slow = next(iter(worker.pending))
                self._replace(
                    worker,
                    f"TimeoutError: no result from environment {slow} within {self._timeout:g} s; "
                    f"{worker.name} was killed",
                )

    def _replace(self, worker: WorkerType, message: str) -> None:
        self._kill(worker)
        repeat = self._lose(worker.indices, message)
        new = self._start(worker.indices)
        self._workers[self._workers.index(worker)] = new
        if repeat:
            self._give(new, repeat, batch=False)


def build_slice(plans: Sequence[SlotPlan]) -> dict[int, Slot]:
    """Build the slots of a worker, by index (runs in the worker)."""
    return {plan.index: slot for plan, slot in zip(plans, build_slots(plans, {}), strict=True)}


def run_call(slots: dict[int, Slot], call: Call) -> SlotReply:
    """Run one call (in the worker)."""
    index, method, args = call
    return index, slots[index].call(method, args)


def portable(error: BaseException) -> BaseException:
    """Return the error if it can be pickled, else an `EnvError` with its text (runs in the worker)."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return EnvError(error_line(error))
    return error
