"""Workers in the actors of a Ray cluster.

Ray places the actors and reports when one dies. Messages are not calls of an actor but go over one TCP
connection, which takes a fraction of the time. It begins with a secret that the actor sent through Ray.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import sys
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from gem_core._util.messages import error_line
from gem_core._workers.worker import Worker, hang_up
from gem_core.errors import ConfigError, EnvError, MissingDependency

SECRET_SIZE = 32
START_SECONDS = 120.0
"""Time limit for the start of an actor."""


def import_ray() -> Any:
    """Return the module `ray`.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependency("workers in Ray actors need Ray: pip install 'gem-core[ray]'") from error
    return ray


def cluster_cpus() -> int:
    """Return the number of CPUs of the cluster to which this process is connected, at least 1.

    Raises:
        ConfigError: Ray is not running.
        MissingDependency: It is not installed.
    """
    ray = import_ray()
    if not ray.is_initialized():
        raise ConfigError("workers in Ray actors need a running Ray: call ray.init() first")
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


class RayWorker(Worker):
    """An actor.

    It reserves no CPU (``num_cpus=0``): trainers often reserve all CPUs for their placement groups, and
    waiting for an actor that is never scheduled would hang.
    """

    def __init__(self, label: str, main: Callable[..., None], args: Sequence[Any]) -> None:
        super().__init__(f"Ray actor {label}")
        self._ray = import_ray()
        options = {"num_cpus": 0, "scheduling_strategy": "SPREAD", "max_restarts": 0}
        self._actor = self._ray.remote(_Actor).options(**options).remote()
        self._address = self._actor.listen.remote(sys.path)
        self._main, self._args = main, args
        self._run: Any = None

    def connect(self) -> None:
        try:
            host, port, secret = self._ray.get(self._address, timeout=START_SECONDS)
            self._run = self._actor.run.remote(self._main, self._args)
            connection = socket.create_connection((host, port), START_SECONDS)
            connection.sendall(secret)
        except (self._ray.exceptions.RayError, OSError) as error:
            self.kill()
            raise EnvError(f"{self.name} failed to start: {error_line(error, 300)}") from error
        self.connection = _connection(connection)
        reference = weakref.ref(self.connection)
        # if a node fails, the connection may not notice
        self._run.future().add_done_callback(lambda _: (c := reference()) is None or hang_up(c))

    def wait(self, seconds: float) -> None:
        if self._ray.is_initialized() and self._run is not None:
            self._ray.wait([self._run], timeout=max(0.0, seconds))

    def _kill(self) -> str:
        if not self._ray.is_initialized():
            return "ended with Ray"
        self._ray.kill(self._actor)
        try:
            self._ray.get(self._run, timeout=START_SECONDS)
        except (self._ray.exceptions.RayError, ValueError) as error:
            return f"died ({error_line(error, 300)})"
        return "lost its connection"


class _Actor:
    """The actor class."""

    def listen(self, path: Sequence[str]) -> tuple[str, int, bytes]:
        """Prepare for a connection; return the address and the secret that it has to begin with."""
        import ray

        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
        host = ray.util.get_node_ip_address()
        self._listener = socket.create_server((host, 0))
        self._listener.settimeout(START_SECONDS)
        self._secret = secrets.token_bytes(SECRET_SIZE)
        return host, self._listener.getsockname()[1], self._secret

    def run(self, main: Callable[..., None], args: Sequence[Any]) -> None:
        """Run the main function of the worker on the connection of the parent."""
        while True:
            peer, _ = self._listener.accept()
            peer.settimeout(10)
            sent = b""
            with contextlib.suppress(OSError):
                while len(sent) < SECRET_SIZE and (data := peer.recv(SECRET_SIZE - len(sent))):
                    sent += data
            if hmac.compare_digest(sent, self._secret):
                break
            peer.close()
        self._listener.close()
        main(_connection(peer), *args)


def _connection(peer: socket.socket) -> Connection:
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(peer.detach())
