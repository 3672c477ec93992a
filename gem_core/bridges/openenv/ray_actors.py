"""`RayHost`: sessions in the actors of a Ray cluster, for fleets of environments on many machines.

A call of an actor costs more CPU time than most steps, so messages travel in batches: while one batch is on
its way, the next one fills.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, TypeAlias

from gem_core._util.messages import error_line
from gem_core.bridges.openenv.hosts import Host, InlineHost, local_host, unexpected
from gem_core.bridges.openenv.sessions import Reply
from gem_core.bridges.openenv.worker import read_settings, worker_settings
from gem_core.bridges.openenv.workers import CLOSE, START_SECONDS, Worker, WorkerHost
from gem_core.errors import ConfigError, EnvError, MissingDependency
from gem_core.registration import make
from gem_core.spec import EnvSpec

LINGER = 0.01
"""Number of seconds for which a batch fills before it is sent. Adds up to twice as much to an answer."""

Record: TypeAlias = tuple[int, int, bytes]
"""Number of the session, kind (`ANSWER` or `CLOSE`), and payload."""


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
    """An actor.

    Attributes:
        actor: Its handle.
    """

    def __init__(self, number: int, actor: Any) -> None:
        super().__init__(f"Ray actor {number}")
        self.actor = actor
        self._records: list[Record] = []
        self._sender: asyncio.Task[None] | None = None

    def send(self, number: int, kind: int, payload: bytes = b"") -> None:
        self._records.append((number, kind, payload))
        if self._sender is None:
            self._sender = asyncio.ensure_future(self._send_records())

    async def _send_records(self) -> None:
        from ray.exceptions import RayError

        try:
            while self._records:
                records, self._records = self._records, []
                await self.actor.take.remote(records)
                await asyncio.sleep(LINGER)
        except RayError:  # the watcher finds out
            self._records = []
        finally:
            self._sender = None

    async def kill(self) -> None:
        import ray

        if self._sender is not None:
            self._sender.cancel()
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

    async def _start_worker(self, number: int) -> RayWorker:
        from ray.exceptions import RayError

        worker = RayWorker(number, self._class.remote(self._settings, self._timeout))
        try:
            problem = await asyncio.wait_for(worker.actor.ready.remote(), START_SECONDS)
            if problem:
                raise EnvError(f"{worker.name} failed to start: {problem}")
        except BaseException as error:
            await worker.kill()
            if isinstance(error, asyncio.TimeoutError | RayError):
                raise EnvError(f"{worker.name} failed to start: {error_line(error, 300)}") from error
            raise
        return worker

    async def _read(self, worker: RayWorker) -> str:
        from ray.exceptions import RayError

        try:
            while True:
                for number, reply in await worker.actor.replies.remote():
                    worker.receive(number, Reply(*reply))
        except RayError as error:
            await worker.kill()
            return f"died ({error_line(error, 300)})"


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
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._replies: list[tuple[int, tuple[Any, ...]]] = []
        self._filled = asyncio.Event()

    async def ready(self) -> str:
        """Build an environment; return what went wrong, or ""."""
        try:
            spec = read_settings(self._settings)
            build = functools.partial(make, spec)
            env = build()
            self._host = local_host(build, spec.id, env, self._timeout)
            env.close()
        except Exception as error:
            return error_line(error)
        return ""

    async def take(self, records: list[Record]) -> None:
        """Begin to answer messages."""
        inline = isinstance(self._host, InlineHost)
        for number, kind, payload in records:
            if kind == CLOSE:
                if number in self._tasks:
                    self._tasks[number].cancel()
                if number in self._seats:
                    self._host.close(self._seats.pop(number))
                continue
            seat = self._seats.get(number)
            if seat is None:
                seat = self._seats[number] = self._host.open()
            if inline:
                self._add(number, seat.answer(payload))
            else:
                self._tasks[number] = asyncio.ensure_future(self._answer(number, seat, payload))

    async def replies(self) -> list[tuple[int, tuple[Any, ...]]]:
        """Wait for replies; return all that are there, each with the number of its session."""
        await self._filled.wait()
        await asyncio.sleep(LINGER)
        replies, self._replies = self._replies, []
        self._filled.clear()
        return replies

    async def _answer(self, number: int, seat: Any, payload: bytes) -> None:
        try:
            reply = await self._host.answer(seat, payload)
        except asyncio.CancelledError:  # the session has ended
            reply = Reply(b"", "close", False)
        except Exception as error:
            reply = unexpected(error)
        del self._tasks[number]
        self._add(number, reply)

    def _add(self, number: int, reply: Reply) -> None:
        self._replies.append((number, tuple(reply)))
        self._filled.set()
