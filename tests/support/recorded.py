"""Environments that record their life in a file, for tests of who closes them, when, and where.

A line has the event, the number of the environment, and the name of the thread. An event is "built", "begins"
or "ends" (a step), "spawned-PID" (a process), or "closed".
"""

from __future__ import annotations

import collections
import itertools
import os
import subprocess
import threading
import time
from pathlib import Path

import gem_core
from gem_core._util.threads import in_thread

_numbers = itertools.count()


class Recorded(gem_core.Env):
    """Takes its time.

    Args:
        path: File of the record.
        build: Seconds of the construction.
        step: Seconds of a step.
        close: Seconds of the close.
    """

    blocking = False

    def __init__(self, path, build=0.0, step=0.0, close=0.0):
        self._path, self._step, self._close = path, step, close
        self._number = f"{os.getpid()}-{next(_numbers)}"
        time.sleep(build)
        self._note("built")

    def reset(self, seed=None, *, options=None):
        self.begin_episode(seed)
        return f"seed {seed}", {}

    def step(self, action):
        self.require_reset()
        self._note("begins")
        if action == "raise":
            self._note("ends")
            raise ValueError("as asked")
        if action == "spawn":
            self._note(f"spawned-{subprocess.Popen(['sleep', '300']).pid}")
            action = "300"
        time.sleep(float(action or self._step))
        self._note("ends")
        return "on", 0.0, False, False, {}

    def close(self):
        time.sleep(self._close)
        self._note("closed")

    def _note(self, event):
        with open(self._path, "a") as file:
            file.write(f"{event} {self._number} {threading.current_thread().name.replace(' ', '')}\n")


class RecordedWaits(Recorded):
    blocking = True


class RecordedComputes(Recorded):
    blocking = "cpu"


class RecordedAwaits(Recorded):
    """Has an async step of its own, which waits for a thread."""

    blocking = True

    async def astep(self, action):
        return await in_thread(self.step, action)


KINDS = (Recorded, RecordedWaits, RecordedComputes, RecordedAwaits)
IDS = tuple(f"test:{kind.__name__}-v0" for kind in KINDS)
"""Answered on the event loop, in threads, in processes, and by async methods."""


def register():
    for kind, id in zip(KINDS, IDS, strict=True):
        gem_core.register(id, f"{__name__}:{kind.__name__}")


class Record:
    """The record that environments have written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self._path.read_text().splitlines()] if self._path.exists() else []

    def count(self, event: str) -> int:
        return sum(line[0] == event for line in self.lines())

    def spawned(self) -> list[int]:
        """Return the processes that environments have started."""
        return [int(line[0].partition("-")[2]) for line in self.lines() if line[0].startswith("spawned")]

    def open(self) -> set[str]:
        """Return the environments that were built and not closed; each must be closed once at most."""
        closed = collections.Counter(line[1] for line in self.lines() if line[0] == "closed")
        assert max(closed.values(), default=1) == 1
        return {line[1] for line in self.lines() if line[0] == "built"} - closed.keys()

    def closed_while_stepping(self) -> list[str]:
        """Return the environments that were closed while a step was running."""
        stepping, found = set(), []
        for event, number, _ in self.lines():
            if event == "begins":
                stepping.add(number)
            elif event == "ends":
                stepping.discard(number)
            elif event == "closed" and number in stepping:
                found.append(number)
        return found

    def closing_threads(self) -> set[str]:
        return {line[2] for line in self.lines() if line[0] == "closed"}


def wait_until(condition, seconds=30.0):
    """Wait for a condition on which the load of the machine has no say."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def runs(pid):
    """Return whether a process runs; one that nobody reaps has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
