"""The process backend: worker processes, for environments that compute.

Workers are spawned, not forked, because forking a process with threads (torch starts some) can deadlock. As
always with spawned processes, a script that starts them needs ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from typing import Any

from gem_core._util import orphans
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, EnvError
from gem_core.vector.backend import GRACE, Call, SlotReply
from gem_core.vector.slices import Died, Ready, SliceBackend, Worker, build_slice, portable, run_call
from gem_core.vector.slot import Slot, SlotPlan


class ProcessWorker(Worker):
    """A worker process and the pipe to it."""

    def __init__(self, number: int, indices: Sequence[int], process: SpawnProcess, pipe: Connection) -> None:
        super().__init__(f"worker process {number} (environments {indices[0]} to {indices[-1]})", indices)
        self.process = process
        self.pipe = pipe


class ProcessBackend(SliceBackend[ProcessWorker]):
    """Worker processes that hold a slice of the environments each; one message per worker and step."""

    name = "process"
    _start_advice = (
        "; stderr shows its error. A program that starts worker processes must be a module or a script "
        "file that runs its code under `if __name__ == '__main__':`"
    )

    def __init__(self, plans: Sequence[SlotPlan], timeout: float | None, workers: int) -> None:
        try:
            pickle.dumps(plans)
        except Exception as error:
            raise ConfigError(
                f"backend 'process' sends the environments' specs to other processes, which failed "
                f"({error_line(error)}); specify entry points as 'module:attribute' and wrappers by name, or "
                f"use backend='thread'"
            ) from error
        self._woken, self._wake = multiprocessing.Pipe(duplex=False)  # close() wakes a wait() elsewhere
        self._pipes: set[Connection] = set()
        # If the vector env is never closed, closing the pipes ends the workers before the interpreter would
        # wait for them forever. (Daemons would end by themselves, but must not have children.)
        self._finalizer = Finalize(self, _close_all, (self._pipes,), exitpriority=100)
        super().__init__(plans, timeout, workers)

    def _start(self, indices: Sequence[int]) -> ProcessWorker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        plans = [self._plans[i] for i in indices]
        announcement = orphans.Announcement(GRACE)
        name = f"gem-envs-{indices[0]}"
        process = context.Process(target=_work, args=(announcement, theirs, plans), name=name)
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()  # so that the pipe closes when the worker ends
        assert process.pid is not None
        orphans.end_with_us(process.pid, GRACE)
        self._pipes.add(ours)
        return ProcessWorker(process.pid, indices, process, ours)

    def _post(self, worker: ProcessWorker, calls: Sequence[Call], batch: bool) -> None:
        with contextlib.suppress(OSError):  # if the worker is dead, _poll reports it
            worker.pipe.send((calls, batch))

    def _poll(self, timeout: float | None) -> list[tuple[ProcessWorker, list[SlotReply] | Ready | Died]]:
        owners: dict[Any, ProcessWorker] = {worker.pipe: worker for worker in self._workers}
        owners |= {worker.process.sentinel: worker for worker in self._workers}
        ready = {owners[item] for item in wait([*owners, self._woken], timeout) if item is not self._woken}
        return [(worker, self._receive(worker)) for worker in self._workers if worker in ready]

    def _receive(self, worker: ProcessWorker) -> list[SlotReply] | Ready | Died:
        try:
            if worker.pipe.poll():
                message: list[SlotReply] | Ready = worker.pipe.recv()
                return message
        except (EOFError, OSError):
            pass
        except Exception as error:
            return Died(f"sent a message that cannot be read here ({error_line(error)})")
        worker.process.join(GRACE)
        return Died(f"died with exit code {worker.process.exitcode}")

    def _kill(self, worker: ProcessWorker) -> None:
        if worker.process.pid is not None:
            orphans.release(worker.process.pid)
        if worker.process.exitcode is None:
            _kill_group(worker.process)
        worker.process.join()
        worker.process.close()
        self._pipes.discard(worker.pipe)
        worker.pipe.close()

    def _stop(self, workers: Sequence[ProcessWorker]) -> None:
        self._wake.send_bytes(b"")
        with self._waiting:
            for worker in workers:
                worker.pipe.close()  # tells the worker to end
            end = time.monotonic() + GRACE
            for worker in workers:
                worker.process.join(max(0.0, end - time.monotonic()))
                self._kill(worker)
            self._wake.close()
            self._woken.close()


def _close_all(pipes: set[Connection]) -> None:
    for pipe in pipes:
        pipe.close()


def _kill_group(process: SpawnProcess) -> None:
    """Kill a worker and all processes that its environments started."""
    process.kill()
    if process.pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


# -- in the worker ----------------------------------------------------------------------------


def _work(announcement: orphans.Announcement, pipe: Connection, plans: Sequence[SlotPlan]) -> None:
    """Run calls until the pipe is closed; the main function of a worker."""
    if hasattr(os, "setsid"):
        os.setsid()  # the parent handles Ctrl-C, and a kill reaches the processes of environments
    announcement.send()
    try:
        slots = build_slice(plans)
    except BaseException as error:
        pipe.send(Ready(portable(error)))
        return
    inbox: queue.SimpleQueue[tuple[Sequence[Call], bool] | None] = queue.SimpleQueue()
    finished = threading.Event()
    # a thread always reads the pipe, so the parent never blocks and its end is detected
    threading.Thread(target=_read, args=(pipe, inbox, finished), daemon=True).start()
    try:
        pipe.send(Ready())
        while (message := inbox.get()) is not None:
            calls, batch = message
            if batch:
                _send(pipe, slots, [(call, run_call(slots, call)) for call in calls])
            else:
                for call in calls:
                    _send(pipe, slots, [(call, run_call(slots, call))])
    except OSError:  # the parent has closed the pipe
        pass
    for slot in slots.values():
        slot.close()
    finished.set()


def _read(
    pipe: Connection, inbox: queue.SimpleQueue[tuple[Sequence[Call], bool] | None], finished: threading.Event
) -> None:
    try:
        while True:
            inbox.put(pipe.recv())
    except (EOFError, OSError):
        inbox.put(None)
    if not finished.wait(GRACE):
        os._exit(1)  # a hung environment must not outlive the parent


def _send(pipe: Connection, slots: dict[int, Slot], done: Sequence[tuple[Call, SlotReply]]) -> None:
    try:
        data = pickle.dumps([reply for _, reply in done])
    except Exception:
        data = pickle.dumps([_sendable(slots[call[0]], call, reply) for call, reply in done])
    pipe.send_bytes(data)


def _sendable(slot: Slot, call: Call, reply: SlotReply) -> SlotReply:
    """Return the reply, or a failure of the environment if the reply cannot be sent."""
    try:
        pickle.dumps(reply)
    except Exception as error:
        failure = EnvError(
            f"{call[1]}() returned a value that cannot be sent to another process ({error_line(error)})"
        )
        return call[0], slot.fail(call[1], failure)
    return reply
