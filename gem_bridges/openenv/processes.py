"""`ProcessHost`: sessions in worker processes, for environments that compute (``blocking = "cpu"``)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time

from gem_bridges.openenv.hosts import cancel, too_slow
from gem_bridges.openenv.sessions import SessionReply
from gem_bridges.openenv.worker import HEADER, READY, read_record, unpack_reply, worker_settings
from gem_bridges.openenv.workers import END_SECONDS, START_SECONDS, Seat, Worker, WorkerHost
from gem_core._util import orphans
from gem_core._util.waiting import Overdue, within
from gem_core.errors import EnvError
from gem_core.spec import EnvSpec


class ProcessWorker(Worker):
    """A worker process, which answers one message after the other.

    Attributes:
        process: The process.
        since: Time at which it began the oldest unanswered message, in seconds of `time.monotonic`.
    """

    def __init__(self, number: int, process: asyncio.subprocess.Process, timeout: float | None) -> None:
        super().__init__(f"worker process {number}")
        self.process = process
        self.since = 0.0
        self._timeout = timeout
        self._overdue = False

    def send(self, number: int, kind: int, payload: bytes = b"") -> None:
        assert self.process.stdin is not None
        if not self.process.stdin.is_closing():
            self.process.stdin.write(HEADER.pack(number, kind, len(payload)) + payload)

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Where the process writes its replies."""
        assert self.process.stdout is not None
        return self.process.stdout

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(Overdue):
            await within(END_SECONDS, self.process.wait())
        await self.kill()

    async def kill(self) -> None:
        self.kill_now()
        await self.process.wait()
        orphans.release(self.process.pid)

    def kill_now(self) -> None:
        """Kill the process and the processes that its environments started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def call(self, seat: Seat, payload: bytes) -> asyncio.Future[SessionReply]:
        if not self.calls:
            self.since = time.monotonic()
        return super().call(seat, payload)

    def receive(self, number: int, reply: SessionReply) -> None:
        self.since = time.monotonic()
        super().receive(number, reply)

    def overdue_reply(self, position: int) -> SessionReply | None:
        return too_slow(self._timeout) if self._overdue and position == 0 else None

    async def kill_when_overdue(self) -> None:
        """Kill the process when a message takes too long."""
        if self._timeout is None:
            return
        while True:
            left = self.since + self._timeout - time.monotonic() if self.calls else self._timeout
            if left <= 0:
                self._overdue = True
                self.kill_now()
                return
            await asyncio.sleep(left)


class ProcessHost(WorkerHost[ProcessWorker]):
    """Runs sessions in worker processes.

    Args:
        spec: Environment, with the arguments and the wrappers.
        count: Number of processes.
        timeout: Maximum number of seconds for one message, from the moment that the worker begins it; then
            the worker is killed. None means no limit.

    Raises:
        ConfigError: The spec has no JSON form.
    """

    def __init__(self, spec: EnvSpec, count: int, timeout: float | None) -> None:
        super().__init__(count)
        self._settings = worker_settings(spec)
        self._timeout = timeout

    async def _start_worker(self, number: int) -> ProcessWorker:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gem_bridges.openenv.worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        worker = ProcessWorker(number, process, self._timeout)
        orphans.end_with_us(process.pid, END_SECONDS)
        try:
            worker.send(0, READY, self._settings)
            _, _, problem = await within(START_SECONDS, read_record(worker.stdout))
            if problem:
                raise EnvError(f"{worker.name} failed to start: {problem.decode()}")
        except BaseException as error:
            await worker.kill()
            if isinstance(error, Overdue | asyncio.IncompleteReadError):
                raise EnvError(f"{worker.name} died before it was ready; stderr shows its error") from error
            raise
        return worker

    async def _read(self, worker: ProcessWorker) -> str:
        clock = asyncio.ensure_future(worker.kill_when_overdue())
        try:
            while True:
                number, kind, data = await read_record(worker.stdout)
                worker.receive(number, unpack_reply(kind, data))
        except (asyncio.IncompleteReadError, ConnectionError):
            await worker.kill()  # and what its environments have started
            return f"died with exit code {worker.process.returncode}"
        finally:
            await cancel(clock)
