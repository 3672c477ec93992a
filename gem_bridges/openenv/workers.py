"""`WorkerHost`: sessions in workers, which may die. The base class of `ProcessHost` and `RayHost`.

A worker holds the sessions themselves. The server forwards messages to it unchanged and passes its answers
on, so the worker reads and writes the JSON. If a worker is lost, its sessions lose their running episode:
each of them gets one `SESSION_ERROR`, and its next reset starts in another worker.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from typing import Generic, TypeVar

from gem_bridges.openenv import wire
from gem_bridges.openenv.hosts import Host, cancel, lost
from gem_bridges.openenv.sessions import SessionReply
from gem_core.errors import EnvError

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""Time limit for the start of a worker."""
END_SECONDS = 10.0
"""Number of seconds that a worker has to close its environments when the server ends."""

ANSWER, CLOSE = 1, 2
"""Kinds of messages to a worker."""


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


class Worker(abc.ABC):
    """The server's side of a worker.

    Attributes:
        name: Its name, for messages.
        seats: Its sessions, by number.
        calls: Unanswered messages by the number of the session, oldest first: the seat and the future of the
            reply.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.seats: dict[int, Seat] = {}
        self.calls: dict[int, tuple[Seat, asyncio.Future[SessionReply]]] = {}

    @abc.abstractmethod
    def send(self, number: int, kind: int, payload: bytes = b"") -> None:
        """Send a message about a session; if the worker is dead, the watcher notices."""

    @abc.abstractmethod
    async def end(self) -> None:
        """Let the worker close its environments, then wait for its end; after a limited time, kill it."""

    @abc.abstractmethod
    async def kill(self) -> None:
        """Kill the worker and wait for its end. May be called more than once."""

    def call(self, seat: Seat, payload: bytes) -> asyncio.Future[SessionReply]:
        """Send a message of the client; return the future of its reply."""
        future: asyncio.Future[SessionReply] = asyncio.get_running_loop().create_future()
        self.calls[seat.number] = seat, future
        self.send(seat.number, ANSWER, payload)
        return future

    def receive(self, number: int, reply: SessionReply) -> None:
        """Pass on the reply to the message of a session."""
        seat, future = self.calls.pop(number)
        seat.running = reply.running
        if not future.done():
            future.set_result(reply)

    def overdue_reply(self, position: int) -> SessionReply | None:
        """Return the reply to an unanswered message of a lost worker; None for the usual one.

        Args:
            position: Position in `calls`.
        """
        return None


W = TypeVar("W", bound=Worker)


class WorkerHost(Host, Generic[W]):
    """Runs sessions in workers; a new session joins the worker with the fewest.

    Args:
        count: Number of workers.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: list[W] = []
        # Each passes on the replies of a worker; when the worker is lost, it starts another one.
        self._watchers: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()  # set while there is a worker
        self._started = 0
        self._seats = 0
        self._stopping = False

    @abc.abstractmethod
    async def _start_worker(self, number: int) -> W:
        """Start a worker.

        Raises:
            EnvError: It cannot build the environment.
        """

    @abc.abstractmethod
    async def _read(self, worker: W) -> str:
        """Pass on the replies of a worker until it is lost; return the reason."""

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
            await asyncio.gather(*map(cancel, list(self._watchers)))
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.end() for worker in workers))

    def open(self) -> Seat:
        self._seats += 1
        return Seat(self._seats)

    async def answer(self, seat: Seat, payload: bytes) -> SessionReply:
        if seat.loss is not None:
            loss, seat.loss = seat.loss, None
            if b'"reset"' not in payload:  # sent by a client that already knows of the loss
                return lost(loss, wire.SESSION_ERROR)
        if seat.worker is None:
            while not self._workers:
                await self._ready.wait()
            seat.worker = min(self._workers, key=lambda worker: len(worker.seats))
            seat.worker.seats[seat.number] = seat
        return await seat.worker.call(seat, payload)

    def close(self, seat: Seat) -> None:
        if seat.worker is not None:
            seat.worker.seats.pop(seat.number, None)
            seat.worker.send(seat.number, CLOSE)
            seat.worker = None

    async def _add_worker(self) -> None:
        self._started += 1
        worker = await self._start_worker(self._started)
        self._workers.append(worker)
        watcher = asyncio.ensure_future(self._watch(worker))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        self._ready.set()

    async def _watch(self, worker: W) -> None:
        text = f"{worker.name} {await self._read(worker)}"
        self.lost_workers += 1
        self._workers.remove(worker)
        if not self._workers:
            self._ready.clear()
        logger.error("%s; %d sessions lose their episode", text, len(worker.seats))
        for seat in worker.seats.values():
            seat.worker = None
            if seat.running:
                seat.running, seat.loss = False, f"{text} and took the episode with it"
        for position, (seat, future) in enumerate(worker.calls.values()):
            seat.loss = None  # reported here
            if not future.done():
                future.set_result(worker.overdue_reply(position) or lost(text, wire.SESSION_ERROR))
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
