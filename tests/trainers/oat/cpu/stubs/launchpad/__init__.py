"""Stub of Launchpad: all nodes of a program run in one process, and actors answer synchronously.

Real Launchpad starts a process for each node. Here a future has its result from the start, because otherwise
actor and learner would load models concurrently, which transformers cannot do in one process. Plasma, the
shared memory through which Oat passes batches, only exists for old versions of pyarrow; a dictionary of
pickles replaces it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow


class CourierNode:
    """Node whose methods other nodes call."""

    def __init__(self, kind: Any, *args: Any, **kwargs: Any) -> None:
        self.handle = Handle(functools.partial(kind, *args, **kwargs))


class PyClassNode:
    """Node that is run."""

    def __init__(self, kind: Any, *args: Any) -> None:
        self.kind, self.args = kind, args


class Handle:
    """Handle of a courier node: its methods, and `futures` of them."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self.futures = types.SimpleNamespace()

    def start(self) -> None:
        self._node = self._make()
        for name in dir(self._node):
            if not name.startswith("_") and name != "run" and callable(getattr(self._node, name)):
                setattr(self.futures, name, self._later(getattr(self._node, name)))
                setattr(self, name, getattr(self._node, name))
        if hasattr(self._node, "run"):
            threading.Thread(target=self._node.run, daemon=True).start()

    def _later(self, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_result(method(*args, **kwargs))
            return future

        return call


class Program:
    """The nodes."""

    def __init__(self, name: str) -> None:
        self.handles: list[Handle] = []
        self.learners: list[PyClassNode] = []

    def add_node(self, node: Any, label: str) -> Any:
        if isinstance(node, PyClassNode):
            self.learners.append(node)
            return None
        self.handles.append(node.handle)
        return node.handle


def launch(program: Program, **unused: Any) -> None:
    """Run the learner; only one learner is possible, because all nodes share the process."""
    (node,) = program.learners
    for handle in program.handles:
        handle.start()
    node.kind(*node.args).run()


def stop() -> None:
    """Do nothing: the program ends with the learner."""


_store: dict[bytes, bytes] = {}
_numbers = itertools.count()


class ObjectID(bytes):
    def binary(self) -> bytes:
        return bytes(self)


class _Client:
    def put(self, value: bytes) -> ObjectID:
        key = ObjectID(str(next(_numbers)).encode())
        _store[key] = value
        return key

    def get(self, key: ObjectID) -> bytes:
        return _store[key]

    def delete(self, keys: tuple[ObjectID, ...]) -> None:
        for key in keys:
            del _store[key]


@contextlib.contextmanager
def _start_plasma_store(plasma_store_memory: int) -> Iterator[tuple[str, None]]:
    yield "in this process", None


_plasma: Any = types.ModuleType("pyarrow.plasma", "Stub; see launchpad.")
_plasma.ObjectID, _plasma.connect = ObjectID, lambda path: _Client()
_plasma.start_plasma_store = _start_plasma_store
pyarrow.plasma = sys.modules["pyarrow.plasma"] = _plasma
