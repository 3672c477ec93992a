"""`Worker`: the parent's side of a process or an actor that holds environments."""

from __future__ import annotations

import abc
import contextlib
import os
import socket
import threading
import time
from multiprocessing.connection import Connection
from typing import Any


class Worker(abc.ABC):
    """A worker. Its calls wait for each other: it runs them one at a time, in the order of their arrival.

    Attributes:
        name: Name for messages.
        connection: Connection to its main function; exists once `connect` has returned.
        sentinel: Descriptor that is readable after its end, if the connection alone may not tell.
        pending: Unanswered calls by the index of their environment, oldest first.
        since: Time at which the worker began the oldest of them, in seconds of `time.monotonic`.
    """

    connection: Connection
    sentinel: int | None = None
    advice = ""
    """Advice in the message about a worker that cannot start."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: dict[int, Any] = {}
        self.since = 0.0
        self._lock = threading.Lock()
        self._end: str | None = None

    def begin(self, index: int, call: Any) -> None:
        """Note a call that is about to be sent."""
        if not self.pending:
            self.since = time.monotonic()
        self.pending[index] = call

    def answered(self, index: int) -> Any:
        """Note the reply to a call; return the call."""
        self.since = time.monotonic()
        return self.pending.pop(index)

    def connect(self) -> None:  # noqa: B027 - a process is connected from its start
        """Wait for the connection.

        Raises:
            EnvError: The worker could not be started.
        """

    def hang_up(self) -> None:
        """End the connection; the worker then closes its environments and ends."""
        if hasattr(self, "connection"):
            hang_up(self.connection)

    def kill(self) -> str:
        """Kill the worker and what its environments have started, and wait for its end.

        May be called more than once, from any thread.

        Returns:
            How it ended, as the rest of a sentence that begins with its name.
        """
        with self._lock:
            if self._end is None:
                self._end = self._kill()
                if hasattr(self, "connection"):
                    self.connection.close()
            return self._end

    @abc.abstractmethod
    def wait(self, seconds: float) -> None:
        """Wait until the worker has ended, or for this time."""

    @abc.abstractmethod
    def _kill(self) -> str: ...


def hang_up(connection: Connection) -> bool:
    """End a connection, whoever has a copy of its socket; return whether it was open."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
        return True
    return False
