"""`RayHost`: sessions in the actors of a Ray cluster, for fleets of environments on many machines.

Ray places the actors and reports when one dies. Messages are not calls of an actor: every actor opens one TCP
connection to the server, on which one wake-up handles several messages. It begins with a secret that the
actor received through Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import secrets
from typing import Any

from gem_bridges.openenv.hosts import Host, InlineHost, cancel, local_host, unexpected
from gem_bridges.openenv.sessions import SessionReply
from gem_bridges.openenv.worker import (
    HEADER,
    pack_reply,
    read_record,
    read_settings,
    unpack_reply,
    worker_settings,
)
from gem_bridges.openenv.workers import CLOSE, END_SECONDS, START_SECONDS, Worker, WorkerHost
from gem_core._util.messages import error_line
from gem_core._util.waiting import Overdue, within
from gem_core.errors import ConfigError, EnvError, MissingDependency
from gem_core.registration import make
from gem_core.spec import EnvSpec

SECRET_SIZE = 32


def import_ray() -> Any:
    """Return the module `ray`.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependency("sessions in Ray actors need Ray: pip install 'gem-core[ray]'") from error
    return ray


class RayWorker(Worker):
    """An actor, reached over TCP.

    Attributes:
        actor: Its handle.
        end_of_run: Reference to the end of its only long call, an error if the actor died.
    """

    def __init__(self, number: int, actor: Any) -> None:
        super().__init__(f"Ray actor {number}")
        self.actor = actor
        self.end_of_run: Any = None
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use a connection of the actor."""
        self.reader, self._writer = reader, writer
        self.connected.set_result(None)

    def send(self, number: int, kind: int, payload: bytes = b"") -> None:
        assert self._writer is not None
        if not self._writer.is_closing():
            self._writer.write(HEADER.pack(number, kind, len(payload)) + payload)

    async def end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        with contextlib.suppress(Overdue):
            await within(END_SECONDS, _end(self.end_of_run))
        await self.kill()

    async def kill(self) -> None:
        import ray

        if self._writer is not None:
            self._writer.close()
        if ray.is_initialized():  # otherwise it ended with Ray
            ray.kill(self.actor)


class RayHost(WorkerHost[RayWorker]):
    """Runs sessions in Ray actors, spread over the cluster to which this process is connected.

    The actors reserve no CPU (``num_cpus=0``): trainers often reserve all CPUs for their placement groups,
    and waiting for an actor that is never scheduled would hang.

    Args:
        spec: Environment, with the arguments and the wrappers.
        count: Number of actors; None means one per CPU of the cluster.
        timeout: Maximum number of seconds for one message in the actor, except for environments that are not
            `blocking`; None means no limit.

    Raises:
        ConfigError: Ray is not running, or the spec has no JSON form.
        MissingDependency: Ray is not installed.
    """

    def __init__(self, spec: EnvSpec, count: int | None, timeout: float | None) -> None:
        ray = import_ray()
        if not ray.is_initialized():
            raise ConfigError("sessions in Ray actors need a running Ray: call ray.init() first")
        super().__init__(count or max(1, int(ray.cluster_resources().get("CPU", 1))))
        self._class = ray.remote(SessionActor).options(
            num_cpus=0, scheduling_strategy="SPREAD", max_restarts=0
        )
        self._settings = worker_settings(spec)
        self._timeout = timeout
        self._address = ray.util.get_node_ip_address()
        self._listener: asyncio.Server | None = None
        self._starting: dict[bytes, RayWorker] = {}  # by the secret

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, self._address, 0)
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        if self._listener is not None:
            self._listener.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, Overdue):
            sent = await within(10, reader.readexactly(SECRET_SIZE))
            for secret, worker in list(self._starting.items()):
                if hmac.compare_digest(secret, sent):
                    del self._starting[secret]
                    worker.connect(reader, writer)
                    return
        writer.close()

    async def _start_worker(self, number: int) -> RayWorker:
        from ray.exceptions import RayError

        assert self._listener is not None
        port = self._listener.sockets[0].getsockname()[1]
        secret = secrets.token_bytes(SECRET_SIZE)
        worker = RayWorker(number, self._class.remote(self._settings, self._timeout))
        self._starting[secret] = worker
        try:
            problem = await within(START_SECONDS, worker.actor.ready.remote())
            if problem:
                raise EnvError(f"{worker.name} failed to start: {problem}")
            worker.end_of_run = worker.actor.run.remote(self._address, port, secret)
            await within(START_SECONDS, worker.connected)
        except BaseException as error:
            self._starting.pop(secret, None)
            await worker.kill()
            if isinstance(error, Overdue | RayError):
                raise EnvError(f"{worker.name} failed to start: {error_line(error, 300)}") from error
            raise
        return worker

    async def _read(self, worker: RayWorker) -> str:
        reading = asyncio.ensure_future(self._read_replies(worker))
        end = asyncio.ensure_future(_end(worker.end_of_run))  # if a node fails, the connection may not notice
        try:
            await asyncio.wait({reading, end}, return_when=asyncio.FIRST_COMPLETED)
            reason = f"died ({await within(START_SECONDS, end)})"
        except Overdue:
            reason = "lost its connection"
        finally:
            await cancel(reading)
            await cancel(end)
        await worker.kill()
        return reason

    async def _read_replies(self, worker: RayWorker) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, kind, data = await read_record(worker.reader)
                worker.receive(number, unpack_reply(kind, data))


async def _end(reference: Any) -> str:
    """Wait for the end of an actor; return its reason."""
    from ray.exceptions import RayError

    try:
        await reference
    except RayError as error:
        return error_line(error, 300)
    return "its connection ended"


class SessionActor:
    """The actor class: holds sessions, and runs them as a server would in its own process.

    Args:
        settings: Result of `worker_settings`.
        timeout: See `RayHost`.
    """

    def __init__(self, settings: bytes, timeout: float | None) -> None:
        self._settings, self._timeout = settings, timeout
        self._host: Host
        self._seats: dict[int, Any] = {}
        self._tasks: dict[int, asyncio.Task[SessionReply]] = {}
        self._writer: asyncio.StreamWriter

    async def ready(self) -> str:
        """Build an environment; return an error message, or "" on success."""
        try:
            spec = read_settings(self._settings)
            build = functools.partial(make, spec)
            env = build()
            self._host = local_host(build, spec.id, env, self._timeout)
            env.close()
        except Exception as error:
            return error_line(error)
        return ""

    async def run(self, address: str, port: int, secret: bytes) -> None:
        """Answer the messages of the server until it closes the connection."""
        reader, self._writer = await asyncio.open_connection(address, port)
        self._writer.write(secret)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self._take(*await read_record(reader))
        for task in list(self._tasks.values()):
            await cancel(task)
        for seat in self._seats.values():
            self._host.close(seat)
        await self._host.stop()

    def _take(self, number: int, kind: int, payload: bytes) -> None:
        if kind == CLOSE:
            if number in self._tasks:
                self._tasks[number].cancel()
            if number in self._seats:
                self._host.close(self._seats.pop(number))
            return
        seat = self._seats.get(number)
        if seat is None:
            seat = self._seats[number] = self._host.open()
        if isinstance(self._host, InlineHost):
            self._writer.write(pack_reply(number, seat.answer(payload)))
        else:
            task = self._tasks[number] = asyncio.ensure_future(self._host.answer(seat, payload))
            task.add_done_callback(functools.partial(self._answered, number))

    def _answered(self, number: int, task: asyncio.Task[SessionReply]) -> None:
        """Send the reply of a task, also of one that was canceled before it began."""
        del self._tasks[number]
        if task.cancelled():  # the session has ended
            reply = SessionReply(b"", "close", False)
        elif (error := task.exception()) is not None:
            reply = unexpected(error)
        else:
            reply = task.result()
        self._writer.write(pack_reply(number, reply))
