"""Workers: processes and Ray actors that hold environments, for vector environments and for servers.

    def main(connection, *args):   # runs in the worker
        connection.send("ready")
        while True:
            connection.send(answer(connection.recv()))

    worker = start_worker("process", "of the docs", main, args, grace=5.0)
    worker.connect()
    worker.connection.send(...)

A worker ends with its program, even if the program is killed, and takes along what its environments have
started. It learns of the end of its work by an `EOFError` of its connection.
"""

from __future__ import annotations

from gem_core._workers.recipe import EnvRecipe
from gem_core._workers.start import start_worker
from gem_core._workers.worker import Worker

__all__ = ["EnvRecipe", "Worker", "start_worker"]
