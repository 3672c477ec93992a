"""`WorkerHost`: sessions in worker processes or Ray actors, which may die.

A worker holds the sessions themselves. The server forwards messages to it unchanged and passes its answers
on, so the worker reads and writes the JSON. If a worker is lost, its sessions lose their running episode:
each of them gets one `SESSION_ERROR`, and its next reset starts in another worker.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import pickle
import time

from gem_bridges.openenv import _wire
from gem_bridges.openenv._hosts import SessionHost, end_task, lost, too_slow
from gem_bridges.openenv._session_workers import (
    ANSWER,
    CLOSE,
    pack,
    read_record,
    serve_actor,
    serve_process,
    socket_streams,
    unpack_reply,
)
from gem_bridges.openenv._sessions import SessionReply
from gem_core._util.messages import error_line
from gem_core._util.threads import ThreadPool, call_in
from gem_core._util.waiting import Overdue, within
from gem_core._workers import EnvRecipe, Worker, start_worker
from gem_core._workers.start import WorkerKind
from gem_core.errors import ConfigError, EnvError

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""Time limit for the start of a worker."""
END_SECONDS = 10.0
"""Number of seconds that a worker has to close its environments when the server ends."""

_STARTS_AND_ENDS = ThreadPool(256, "gem-workers")


class WorkerSeat:
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
        self.worker: SessionWorker | None = None
        self.running = False
        self.loss: str | None = None


class SessionWorker:
    """The server's side of a worker.

    Attributes:
        worker: The worker. Its calls are seats and the futures of their replies.
        seats: Its sessions, by number.
        overdue: Whether it was killed because its oldest call took too long.
    """

    def __init__(self, worker: Worker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.worker = worker
        self.seats: dict[int, WorkerSeat] = {}
        self.overdue = False
        self._reader, self._writer = reader, writer

    def send(self, number: int, kind: int, payload: bytes = b"") -> None:
        """Send a message about a session; if the worker is dead, the watcher notices."""
        if not self._writer.is_closing():
            self._writer.write(pack(number, kind, payload))

    def call(self, seat: WorkerSeat, payload: bytes) -> asyncio.Future[SessionReply]:
        """Send a message of the client; return the future of its reply."""
        future: asyncio.Future[SessionReply] = asyncio.get_running_loop().create_future()
        self.worker.begin(seat.number, (seat, future))
        self.send(seat.number, ANSWER, payload)
        return future

    async def receive(self) -> None:
        """Pass on the replies of the worker until it is lost."""
        while True:
            number, kind, content = await read_record(self._reader)
            reply = unpack_reply(kind, content)
            seat, future = self.worker.answered(number)
            seat.running = reply.running
            if not future.done():
                future.set_result(reply)

    async def kill_when_overdue(self, timeout: float | None) -> None:
        """Kill the worker when a message takes too long."""
        while timeout is not None and not self.overdue:
            left = self.worker.since + timeout - time.monotonic() if self.worker.pending else timeout
            if left > 0:
                await asyncio.sleep(left)
            else:
                self.overdue = True
                await self.kill()

    async def end(self) -> None:
        """Let the worker close its environments and end; after a limited time, kill it."""
        self.worker.hang_up()
        await call_in(_STARTS_AND_ENDS, functools.partial(self.worker.wait, END_SECONDS))
        await self.kill()

    async def kill(self) -> str:
        """Kill the worker and wait for its end; return how it ended."""
        self._writer.close()
        return await _kill(self.worker)


class WorkerHost(SessionHost):
    """Runs sessions in workers; a new session joins the worker with the fewest.

    Args:
        kind: Kind of the workers.
        recipe: Recipe for the environment.
        count: Number of workers.
        timeout: Maximum number of seconds for one message. A process that takes longer is killed; the time
            counts from the moment at which it begins the message. In an actor, only the session is lost, and
            there is no limit for environments that are not `blocking`. None means no limit.

    Raises:
        ConfigError: The recipe cannot be sent to another process.
    """

    def __init__(self, kind: WorkerKind, recipe: EnvRecipe, count: int, timeout: float | None) -> None:
        try:
            pickle.dumps(recipe)
        except Exception as error:
            raise ConfigError(
                f"{recipe.spec.id}: workers cannot build it, because its spec cannot be sent to another "
                f"process ({error_line(error)}); specify the entry point as 'module:attribute', or use "
                "workers=0"
            ) from error
        self._kind, self._recipe, self._count, self._timeout = kind, recipe, count, timeout
        self._workers: list[SessionWorker] = []
        # Each passes on the replies of a worker; when the worker is lost, it starts another one.
        self._watchers: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()  # set while there is a worker
        self._started = 0
        self._seats = 0
        self._stopping = False

    async def start(self) -> None:
        try:
            results = await asyncio.gather(
                *(self._add_worker() for _ in range(self._count)), return_exceptions=True
            )
            for error in results:
                if error is not None:
                    raise error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self._stopping = True
        while self._watchers:  # also those that are starting another worker
            await asyncio.gather(*map(end_task, list(self._watchers)))
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.end() for worker in workers))

    def open(self) -> WorkerSeat:
        self._seats += 1
        return WorkerSeat(self._seats)

    async def answer(self, seat: WorkerSeat, payload: bytes) -> SessionReply:
        if seat.loss is not None:
            loss, seat.loss = seat.loss, None
            if b'"reset"' not in payload:  # sent by a client that already knows of the loss
                return lost(loss, _wire.SESSION_ERROR)
        if seat.worker is None:
            while not self._workers:
                await self._ready.wait()
            seat.worker = min(self._workers, key=lambda worker: len(worker.seats))
            seat.worker.seats[seat.number] = seat
        return await seat.worker.call(seat, payload)

    def close(self, seat: WorkerSeat) -> None:
        if seat.worker is not None:
            seat.worker.seats.pop(seat.number, None)
            seat.worker.send(seat.number, CLOSE)
            seat.worker = None

    async def _start_worker(self, number: int) -> SessionWorker:
        if self._kind == "process":
            worker = start_worker("process", str(number), serve_process, (self._recipe,), END_SECONDS)
        else:
            args = (self._recipe, self._timeout)
            worker = start_worker("ray", str(number), serve_actor, args, END_SECONDS)
        try:
            problem = await within(
                START_SECONDS, call_in(_STARTS_AND_ENDS, functools.partial(_first, worker))
            )
            if problem:
                raise EnvError(f"{worker.name} failed to start: {problem}")
            return SessionWorker(worker, *await socket_streams(worker.connection))
        except BaseException as error:
            end = await _kill(worker)
            if isinstance(error, Overdue | EOFError | OSError):
                raise EnvError(f"{worker.name} {end} before it was ready{worker.advice}") from error
            raise

    async def _add_worker(self) -> None:
        self._started += 1
        worker = await self._start_worker(self._started)
        self._workers.append(worker)
        watcher = asyncio.ensure_future(self._watch(worker))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        self._ready.set()

    async def _watch(self, worker: SessionWorker) -> None:
        clock = asyncio.ensure_future(
            worker.kill_when_overdue(self._timeout if self._kind == "process" else None)
        )
        try:
            await worker.receive()
        except (asyncio.IncompleteReadError, ConnectionError):
            end = await worker.kill()  # and what its environments have started
        finally:
            await end_task(clock)
        text = f"{worker.worker.name} {end}"
        self.lost_workers += 1
        self._workers.remove(worker)
        if not self._workers:
            self._ready.clear()
        logger.error("%s; %d sessions lose their episode", text, len(worker.seats))
        for seat in worker.seats.values():
            seat.worker = None
            if seat.running:
                seat.running, seat.loss = False, f"{text} and took the episode with it"
        late = worker.overdue
        for seat, future in worker.worker.pending.values():
            seat.loss = None  # reported here
            if not future.done():
                future.set_result(too_slow(self._timeout) if late else lost(text, _wire.SESSION_ERROR))
            late = False
        await self._replace()

    async def _replace(self) -> None:
        delay = 0.5
        while not self._stopping:
            try:
                await self._add_worker()
                return
            except (EnvError, OSError):
                logger.exception("a worker cannot be replaced; next attempt in %g s", delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, 30.0)


def _first(worker: Worker) -> str:
    """Connect to a worker that is starting, and return its first message."""
    worker.connect()
    return str(worker.connection.recv())


async def _kill(worker: Worker) -> str:
    """Kill a worker without blocking the event loop; return how it ended."""
    return await call_in(_STARTS_AND_ENDS, worker.kill)
