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
    """A worker as its owner sees it.

    Attributes:
        name: Name for messages.
        indices: Indices of its slots.
        ready: Whether it has built its slots.
        pending: Indices of the slots with a call that it has not answered, oldest first.
        since: When it began to work on the oldest of them, in seconds of `time.monotonic`.
    """

    name: str
    indices: Sequence[int]
    ready: bool = field(default=False, init=False)
    pending: dict[int, None] = field(default_factory=dict, init=False)
    since: float = field(default=0.0, init=False)


WorkerType = TypeVar("WorkerType", bound=Worker)


@dataclass(frozen=True)
class Died:
    """Event: the worker is gone. `reason` continues a sentence that starts with its name."""

    reason: str


@dataclass(frozen=True)
class Ready:
    """Event: the worker has built its slots, or failed with `error`."""

    error: BaseException | None = None


class SliceBackend(WorkerBackend, Generic[WorkerType]):
    """Distributes the slots over workers and replaces a worker that hangs or dies.

    All slots of such a worker are gone with it: each is cut, at the step under way or at its next
    one, and rebuilt in a new worker. With ``max_workers=num_envs`` no slot shares that fate.

    A worker carries out its calls one after the other, so a slow environment does hold back the
    others of its slice, though nobody else.
    """

    _start_advice = ""
    """Advice for a user whose workers cannot start."""

    def __init__(self, plans: Sequence[SlotPlan], timeout: float | None, workers: int) -> None:
        super().__init__(plans, timeout)
        self._closing = threading.Event()
        self._waiting = threading.Lock()  # held by wait(): close() must not pull workers away under it
        self._state = threading.Lock()  # of the workers: submit() must not give calls to one being replaced
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

    # -- what a subclass knows ----------------------------------------------------------------

    @abc.abstractmethod
    def _start(self, indices: Sequence[int]) -> WorkerType:
        """Start a worker for the plans of these slots, without waiting for it."""

    @abc.abstractmethod
    def _post(self, worker: WorkerType, calls: Sequence[Call], batch: bool) -> None:
        """Give calls to a worker; a dead one is noticed by `_poll`."""

    @abc.abstractmethod
    def _poll(self, timeout: float | None) -> list[tuple[WorkerType, list[SlotReply] | Ready | Died]]:
        """Block until a worker has something to say, for at most `timeout` seconds."""

    @abc.abstractmethod
    def _kill(self, worker: WorkerType) -> None:
        """End a worker at once."""

    @abc.abstractmethod
    def _stop(self, workers: Sequence[WorkerType]) -> None:
        """Wake a `wait` elsewhere, let workers close their environments and end, for at most `GRACE`
        seconds, then kill them.
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
        # with a time limit each reply comes by itself: it starts the clock of the next call
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
    """In the worker: the slots, by index."""
    return {plan.index: slot for plan, slot in zip(plans, build_slots(plans, {}), strict=True)}


def run_call(slots: dict[int, Slot], call: Call) -> SlotReply:
    """In the worker: carry out one call."""
    index, method, args = call
    return index, slots[index].call(method, args)


def portable(error: BaseException) -> BaseException:
    """In the worker: the error itself when it survives the way to the parent, else one that does."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return EnvError(error_line(error))
    return error
