"""The process and Ray backends, whose workers hold a slice of the slots each."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from gem_core._util.messages import error_line
from gem_core._workers.start import WorkerKind, start_worker
from gem_core._workers.worker import Worker
from gem_core.errors import ConfigError, EnvError
from gem_core.vector._backend import GRACE, LossyBackend, SlotCall, SlotReply, build_slots
from gem_core.vector._slot import Slot, SlotPlan


@dataclass(frozen=True)
class Ready:
    """First message of a worker: it has built its slots, or failed with `error` (None if it did not fail)."""

    error: BaseException | None = None


class SliceBackend(LossyBackend):
    """Distributes the slots over workers and replaces a worker that hangs or dies.

    All slots of such a worker are lost with it. The episode of each slot is cut, at the running step or at
    the next one, and the slot is rebuilt in a new worker. With ``max_workers=num_envs``, every slot has its
    own worker.

    A worker runs its calls one at a time, so a slow environment delays only the other environments in its
    slice. There is one message per worker and step.
    """

    def __init__(
        self, kind: WorkerKind, plans: Sequence[SlotPlan], timeout: float | None, workers: int
    ) -> None:
        super().__init__(plans, timeout)
        self.name = self._kind = kind
        if kind == "process":  # Ray sends more than this
            try:
                pickle.dumps(plans)
            except Exception as error:
                raise ConfigError(
                    f"backend 'process' sends the environments' specs to other processes, which failed "
                    f"({error_line(error)}); specify entry points as 'module:attribute' and wrappers by "
                    f"name, or use backend='thread'"
                ) from error
        self._closing = threading.Event()
        self._waiting = threading.Lock()  # held by wait(), so that close() does not remove workers meanwhile
        self._state = threading.Lock()  # guards workers, so that submit() never uses one being replaced
        self._woken, self._wake = Pipe(duplex=False)  # close() wakes a wait() elsewhere
        self._workers: list[Worker] = []
        self._slices: list[range] = []  # of the workers
        self._failure: BaseException | None = None  # of a worker that cannot be replaced
        self._built: set[Worker] = set()  # workers that have built their slots
        try:
            # contiguous slices whose sizes differ by one at most
            bounds = [len(plans) * k // workers for k in range(workers + 1)]
            for first, end in itertools.pairwise(bounds):
                self._slices.append(range(first, end))
                self._workers.append(self._start(range(first, end)))
            for worker in self._workers:
                worker.connect()
            while len(self._built) < workers:
                self._poll(None)
        except BaseException:
            self.close()
            raise
        self._holder = [k for k, indices in enumerate(self._slices) for _ in indices]

    def submit(self, calls: Sequence[SlotCall], *, batch: bool) -> None:
        slices: dict[int, list[SlotCall]] = {}
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
                heard = self._poll(max(0.0, min(ends) - time.monotonic()) if ends else None)
                now = time.monotonic()
                if not heard and due is not None and now >= due:
                    self._replace_overdue(now)
                if end is not None and now >= end:
                    break
            return [] if self._closing.is_set() else self._take()

    def close(self) -> None:
        self._closing.set()
        self._wake.send_bytes(b"")
        with self._waiting:
            for worker in self._workers:
                worker.hang_up()
            end = time.monotonic() + GRACE
            for worker in self._workers:
                worker.wait(end - time.monotonic())
                worker.kill()
            self._workers = []
            self._wake.close()
            self._woken.close()

    # -- parts --------------------------------------------------------------------------------

    def _start(self, indices: range) -> Worker:
        label = f"(environments {indices[0]} to {indices[-1]})"
        return start_worker(self._kind, label, _work, ([self._plans[i] for i in indices],), GRACE)

    def _give(self, worker: Worker, calls: Sequence[SlotCall], batch: bool) -> None:
        for call in calls:
            worker.begin(call[0], call)
        # with a time limit, replies are sent individually, because each starts the clock of the next call
        with contextlib.suppress(OSError):  # if the worker is dead, _poll notices
            worker.connection.send((calls, batch and self._timeout is None))

    def _poll(self, timeout: float | None) -> bool:
        """Handle the messages of workers, for which this waits at most `timeout` seconds.

        Returns:
            Whether there was one.
        """
        if self._failure is not None:
            raise self._failure
        owners: dict[Any, Worker] = {worker.connection: worker for worker in self._workers}
        owners |= {worker.sentinel: worker for worker in self._workers if worker.sentinel is not None}
        ready = {owners[item] for item in wait([*owners, self._woken], timeout) if item is not self._woken}
        if self._closing.is_set():
            return False
        with self._state:
            try:
                for worker in ready:
                    self._receive(worker)
            except BaseException as error:
                self._failure = error
                raise
        return bool(ready)

    def _receive(self, worker: Worker) -> None:
        try:
            message = worker.connection.recv() if worker.connection.poll() else None
        except (EOFError, OSError):
            message = None
        except Exception as error:
            self._lose_worker(worker, f"sent a message that cannot be read here ({error_line(error)})")
            return
        if message is None:
            worker.wait(GRACE)
            self._lose_worker(worker, worker.kill())
        elif isinstance(message, Ready):
            if message.error is not None:
                raise message.error
            worker.since = time.monotonic()
            self._built.add(worker)
        else:
            for index, result in message:
                worker.answered(index)
                self._finish(index, result)

    def _next_due(self) -> float | None:
        if self._timeout is None:
            return None
        with self._state:
            since = [worker.since for worker in self._workers if worker.pending and worker in self._built]
        return min(since) + self._timeout if since else None

    def _replace_overdue(self, now: float) -> None:
        assert self._timeout is not None
        with self._state:
            for worker in list(self._workers):
                if worker.pending and worker in self._built and now >= worker.since + self._timeout:
                    slow = f"no result from environment {next(iter(worker.pending))}"
                    late = f"{slow} within {self._timeout:g} s; {worker.name} was killed"
                    self._replace(worker, f"TimeoutError: {late}")

    def _lose_worker(self, worker: Worker, reason: str) -> None:
        if worker not in self._built:
            raise EnvError(f"{worker.name} {reason} before it was ready{worker.advice}")
        self._replace(worker, f"WorkerDied: {worker.name} {reason}")

    def _replace(self, worker: Worker, message: str) -> None:
        worker.kill()
        self._built.discard(worker)
        position = self._workers.index(worker)
        repeat = self._lose(self._slices[position], message)
        new = self._workers[position] = self._start(self._slices[position])
        new.connect()
        if repeat:
            self._give(new, repeat, batch=False)


# -- in the worker ----------------------------------------------------------------------------


def _work(connection: Connection, plans: Sequence[SlotPlan]) -> None:
    """Run calls until the connection is closed; the main function of a worker."""
    try:
        slots = {plan.index: slot for plan, slot in zip(plans, build_slots(plans, {}), strict=True)}
    except BaseException as error:
        connection.send(Ready(_portable(error)))
        return
    inbox: queue.SimpleQueue[tuple[Sequence[SlotCall], bool] | None] = queue.SimpleQueue()
    finished = threading.Event()
    # a thread always reads the connection, so the parent never blocks and its end is detected
    threading.Thread(target=_read, args=(connection, inbox, finished), daemon=True).start()
    try:
        connection.send(Ready())
        while (message := inbox.get()) is not None:
            calls, batch = message
            for part in [calls] if batch else [[call] for call in calls]:
                _send(connection, slots, [(call, slots[call[0]].call(*call[1:])) for call in part])
    except OSError:  # the parent has closed the connection
        pass
    for slot in slots.values():
        slot.close()
    finished.set()


def _read(
    connection: Connection,
    inbox: queue.SimpleQueue[tuple[Sequence[SlotCall], bool] | None],
    finished: threading.Event,
) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        inbox.put(None)
    if not finished.wait(GRACE):
        os._exit(1)  # a hung environment must not outlive the parent


def _send(connection: Connection, slots: dict[int, Slot], done: Sequence[tuple[SlotCall, Any]]) -> None:
    try:
        data = pickle.dumps([(call[0], result) for call, result in done])
    except Exception:
        data = pickle.dumps([(call[0], _sendable(slots[call[0]], call[1], result)) for call, result in done])
    connection.send_bytes(data)


def _sendable(slot: Slot, method: str, result: Any) -> Any:
    """Return the result, or a failure of the environment if the result cannot be sent."""
    try:
        pickle.dumps(result)
    except Exception as error:
        text = f"{method}() returned a value that cannot be sent to another process ({error_line(error)})"
        return slot.fail(method, EnvError(text))
    return result


def _portable(error: BaseException) -> BaseException:
    """Return the error if it can be pickled, else an `EnvError` with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return EnvError(error_line(error))
    return error
