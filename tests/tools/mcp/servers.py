"""Real MCP servers for the tests, and a proxy that counts the connections to one."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = f"{sys.executable} -m gem_envs.tools.mcp.example"
ENVIRONMENT = {"PYTHONPATH": str(ROOT)}


def free_port() -> int:
    """Return a free port that the system does not give to other sockets before a server takes it."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)  # below the ports of the system's choice
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*command], cwd=ROOT, stderr=subprocess.DEVNULL)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextlib.contextmanager
def example_over_http(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the example server."""
    process = start(*EXAMPLE.split(), "--port", str(port))
    try:
        wait_for(port, process)
        yield process
    finally:
        stop(process)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        assert process.poll() is None
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)


class CountingProxy:
    """Forwards connections to a port and counts them."""

    def __init__(self, target: int) -> None:
        self.target, self.connections = target, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                there = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                here.close()
                continue
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
                end.close()

    def __enter__(self) -> CountingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
