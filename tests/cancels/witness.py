"""An environment that knows how often it was closed, and whether a call was running when that happened."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from gem_core import Env


class Witness(Env):
    """Counts the turns up to `turns`; every call takes `seconds`.

    Attributes:
        made: Every environment since the test began.
        gate: Calls of `step` wait for it; None lets them pass.
        inside: Calls that are running.
        closed: Number of times that it was closed.
        beside: Number of times that it was closed while a call was running, or called after it was closed.
    """

    made: ClassVar[list[Witness]] = []

    def __init__(self, turns: int = 3, seconds: float = 0.0, gate: threading.Event | None = None) -> None:
        self.turns, self.seconds, self.gate = turns, seconds, gate
        self.entered = threading.Event()
        self.was_closed = threading.Event()
        self.turn = self.inside = self.closed = self.beside = 0
        self._lock = threading.Lock()
        Witness.made.append(self)

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._lock:
            self.inside += 1
            self.beside += self.closed > 0
        try:
            yield
        finally:
            with self._lock:
                self.inside -= 1

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        with self.running():
            self.begin_episode(seed)
            self.turn = 0
            if self.seconds:
                time.sleep(self.seconds)
            return "go", {}

    def step(self, action: str) -> Any:
        with self.running():
            self.entered.set()
            if self.gate is not None:
                assert self.gate.wait(30)
            if self.seconds:
                time.sleep(self.seconds)
            return self.result()

    def result(self) -> Any:
        self.turn += 1
        over = self.turn == self.turns
        if over:
            self.end_episode()
        return f"turn {self.turn}", 1.0, over, False, {}

    def close(self) -> None:
        with self._lock:
            self.closed += 1
            self.beside += self.inside > 0
        self.was_closed.set()


class Blocking(Witness):
    blocking = True


class Awaiting(Witness):
    """Has coroutines of its own."""

    async def areset(self, seed: int | None = None, *, options: Any = None) -> Any:
        with self.running():
            await asyncio.sleep(0)
            self.begin_episode(seed)
            self.turn = 0
            return "go", {}

    async def astep(self, action: str) -> Any:
        with self.running():
            await asyncio.sleep(self.seconds)
            return self.result()
