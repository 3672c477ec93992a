"""`ProcessHost`: sessions in worker processes, for environments that compute (``blocking = "cpu"``).

A worker holds the sessions themselves. The server forwards messages to it as they are and sends its answers
on, so JSON is read and written in the worker. If a worker dies or a call takes too long, its sessions lose
their running episode: each of them gets one `SESSION_ERROR`, and its next reset starts in another worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections import deque

from gem_core.bridges.openenv import wire
from gem_core.bridges.openenv.hosts import Host, cancel, lost, too_slow
from gem_core.bridges.openenv.sessions import Reply
from gem_core.bridges.openenv.worker import ANSWER, CLOSE, EVENTS, HEADER, READY
from gem_core.errors import EnvError
from gem_core.registration import wrapper_entry_points
from gem_core.spec import EnvSpec

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""Time limit for the start of a worker."""


class Worker:
    """A worker process, as the server sees it.

    Attributes:
        seats: Its sessions, by number.
        calls: Unanswered messages, oldest first: the seat and the future of the reply.
        since: Time at which the worker began the oldest of them, in seconds of `time.monotonic`.
    """

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.name = f"worker process {number}"
        self.process = process
        self.seats: dict[int, Seat] = {}
        self.calls: deque[tuple[Seat, asyncio.Future[Reply]]] = deque()
        self.since = 0.0
        self.overdue = False
        self.watcher: asyncio.Task[None] | None = None

    def send(self, seat: int, kind: int, payload: bytes = b"") -> None:
        """Send a message; if the worker is dead, the watcher finds out."""
        assert self.process.stdin is not None
        if not self.process.stdin.is_closing():
            self.process.stdin.write(HEADER.pack(seat, kind, len(payload)) + payload)

    def kill(self) -> None:
        """Kill the worker and the processes that its environments started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Seat:
    """A session in a worker.

    Attributes:
        number: Its number, the same in every worker.
        worker: Its worker; None before the first message and after the worker was lost.
        running: Whether an episode is running.
        loss: Message about a lost episode, for the next answer; None if there is none.
    """

    __slots__ = ("loss", "number", "running", "worker")

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: Worker | None = None
        self.running = False
        self.loss: str | None = None


class ProcessHost(Host):
    """Runs sessions in worker processes; a new session joins the worker with the fewest.

    Args:
        spec: Environment, with the arguments and the wrappers.
        workers: Number of processes.
        timeout: Maximum number of seconds for one message, from the moment that the worker begins it; then
            the worker is killed. None means no limit.

    Raises:
        ConfigError: The spec has no JSON form.
    """

    def __init__(self, spec: EnvSpec, workers: int, timeout: float | None) -> None:
        settings = {"spec": spec.to_json(), "wrappers": wrapper_entry_points(), "path": sys.path}
        self._settings = json.dumps(settings).encode()
        self._count, self._timeout = workers, timeout
        self._workers: list[Worker] = []
        self._ready = asyncio.Event()  # set while there is a worker
        self._started = 0
        self._seats = 0
        self._stopping = False

    async def start(self) -> None:
        try:
            for _ in range(self._count):
                self._workers.append(await self._start_worker())
            self._ready.set()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self._stopping = True
        for worker in self._workers:
            if worker.watcher is not None:
                await cancel(worker.watcher)
            worker.kill()
            await worker.process.wait()
        self._workers = []

    def open(self) -> Seat:
        self._seats += 1
        return Seat(self._seats)

    async def answer(self, seat: Seat, payload: bytes) -> Reply:
        if seat.loss is not None:
            loss, seat.loss = seat.loss, None
            if b'"reset"' not in payload:  # which a client that heard of the loss elsewhere sends
                return lost(loss, wire.SESSION_ERROR)
        if seat.worker is None:
            await self._ready.wait()
            seat.worker = min(self._workers, key=lambda worker: len(worker.seats))
            seat.worker.seats[seat.number] = seat
        worker = seat.worker
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if not worker.calls:
            worker.since = time.monotonic()
        worker.calls.append((seat, future))
        worker.send(seat.number, ANSWER, payload)
        return await future

    def close(self, seat: Seat) -> None:
        if seat.worker is not None:
            seat.worker.seats.pop(seat.number, None)
            seat.worker.send(seat.number, CLOSE)
            seat.worker = None

    # -- workers ------------------------------------------------------------------------------

    async def _start_worker(self) -> Worker:
        self._started += 1
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gem_core.bridges.openenv.worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        worker = Worker(self._started, process)
        try:
            worker.send(0, READY, self._settings)
            problem = await asyncio.wait_for(_problem(worker), START_SECONDS)
            if problem:
                raise EnvError(f"{worker.name} failed to start: {problem}")
        except BaseException as error:
            worker.kill()
            await process.wait()
            if isinstance(error, asyncio.TimeoutError | asyncio.IncompleteReadError):
                raise EnvError(f"{worker.name} died before it was ready; stderr shows its error") from error
            raise
        worker.watcher = asyncio.ensure_future(self._watch(worker))
        return worker

    async def _watch(self, worker: Worker) -> None:
        """Pass on the replies of a worker until it ends, then replace it."""
        clock = asyncio.ensure_future(self._kill_overdue(worker))
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._read(worker)
        finally:
            clock.cancel()
        await self._replace(worker, await worker.process.wait())

    async def _read(self, worker: Worker) -> None:
        stdout = worker.process.stdout
        assert stdout is not None
        while True:
            _, flags, size = HEADER.unpack(await stdout.readexactly(HEADER.size))
            data = await stdout.readexactly(size)
            seat, future = worker.calls.popleft()
            worker.since = time.monotonic()
            seat.running = bool(flags & 1)
            if not future.done():
                future.set_result(Reply(data, EVENTS[flags >> 1], seat.running))

    async def _kill_overdue(self, worker: Worker) -> None:
        if self._timeout is None:
            return
        while True:
            left = worker.since + self._timeout - time.monotonic() if worker.calls else self._timeout
            if left <= 0:
                worker.overdue = True
                worker.kill()
                return
            await asyncio.sleep(left)

    async def _replace(self, worker: Worker, code: int) -> None:
        self.lost_workers += 1
        self._workers.remove(worker)
        if not self._workers:
            self._ready.clear()
        text = f"{worker.name} died with exit code {code}"
        logger.error("%s; %d sessions lose their episode", text, len(worker.seats))
        for seat in worker.seats.values():
            seat.worker = None
            if seat.running:
                seat.running, seat.loss = False, f"{text} and took the episode with it"
        for position, (seat, future) in enumerate(worker.calls):
            seat.loss = None  # reported here
            if not future.done():
                slow = worker.overdue and position == 0
                future.set_result(too_slow(self._timeout) if slow else lost(text, wire.SESSION_ERROR))
        delay = 0.5
        while not self._stopping:
            try:
                self._workers.append(await self._start_worker())
                self._ready.set()
                return
            except (EnvError, OSError):
                logger.exception("a worker process cannot be replaced; next attempt in %g s", delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, 30.0)


async def _problem(worker: Worker) -> str:
    """Wait until a worker has started; return what went wrong, or ""."""
    assert worker.process.stdout is not None
    _, _, size = HEADER.unpack(await worker.process.stdout.readexactly(HEADER.size))
    return (await worker.process.stdout.readexactly(size)).decode()
