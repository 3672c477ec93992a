"""Places of bounded resources, and the clocks of the calls that wait for them.

    slots = Places(8)
    with slots.held():  # waits for a place
        ...

A call in a thread cannot be canceled. Its clock tells the thread that nobody waits for the result anymore:
then a wait for a place ends, work that registered with `stopping` is stopped, and both raise `GivenUp`.
A caller that gives up leaves every queue, and what it asked for does not run later.

The clock also measures the time for a time limit. It stands while the call waits for a place, so a limit does
not depend on how many others wait.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from gem_core._util.forks import after_fork, renew_after_fork

_SHORTEST_WAIT = 0.05
"""Seconds until a clock that stands is read again."""


class GivenUp(BaseException):
    """Raised in a thread when nobody waits for its result anymore.

    Like `KeyboardInterrupt`, it is not an `Exception`, so no code takes it for a failure to recover from.
    """


class Clock:
    """The time that one call has run, and whether it was given up.

    Args:
        parents: Clocks of the calls that wait for this one. They stand while this one stands; if all of them
            are given up, so is this one. None is a caller without a clock, which never gives up.
    """

    def __init__(self, *parents: Clock | None) -> None:
        self.given_up = False
        self._ran = 0.0  # seconds until `_since`
        self._since: float | None = time.monotonic()  # None while the clock stands
        self._waits = 0  # waits of this call and of the calls that it makes
        self._parents: list[Clock | None] = []
        self._children: list[Clock] = []
        self._stops: list[Callable[[], object]] = []
        for parent in parents:
            self.join(parent)

    @property
    def seconds(self) -> float:
        """Seconds that the call has run."""
        with _lock:
            return self._ran + (0.0 if self._since is None else time.monotonic() - self._since)

    def left(self, limit: float) -> float:
        """Return the seconds until the call may exceed a limit: until then, it need not be read again."""
        left = limit - self.seconds
        return left if self._since is not None else max(left, _SHORTEST_WAIT)

    def stand(self) -> None:
        """Stop the clock until `go` has been called as often as this method."""
        with _lock:
            self._waits += 1
            if self._since is not None:
                self._ran += time.monotonic() - self._since
                self._since = None
                for parent in self._parents:
                    if parent is not None:
                        parent.stand()

    def go(self) -> None:
        """End a wait that `stand` began."""
        with _lock:
            self._waits -= 1
            if not self._waits:
                self._since = time.monotonic()
                for parent in self._parents:
                    if parent is not None:
                        parent.go()

    def join(self, parent: Clock | None) -> None:
        """Add a caller that waits for this call."""
        with _lock:
            self._parents.append(parent)
            if parent is not None:
                parent._children.append(self)
                if self._waits:
                    parent.stand()
            self._check_parents()

    def leave(self, parent: Clock | None) -> None:
        """Remove a caller that no longer waits for this call, if the call has not ended."""
        with _lock:
            if parent not in self._parents:
                return
            self._parents.remove(parent)
            if parent is not None:
                parent._children.remove(self)
                if self._waits:
                    parent.go()
            self._check_parents()

    def end(self) -> None:
        """Remove all callers, because the call has ended."""
        with _lock:
            parents, self._parents = self._parents, []
            for parent in parents:
                if parent is not None:
                    parent._children.remove(self)
                    if self._waits:
                        parent.go()

    def give_up(self) -> None:
        """Say that nobody waits for the result anymore."""
        with _lock:
            if not self.given_up:
                self.given_up = True
                for stop in [*self._stops]:
                    stop()
                for child in [*self._children]:
                    child._check_parents()

    def _check_parents(self) -> None:
        if self._parents and all(parent is not None and parent.given_up for parent in self._parents):
            self.give_up()


_lock = threading.RLock()
"""Guards all clocks and places: what is done with it takes microseconds."""
_current: ContextVar[Clock | None] = ContextVar("gem_core_clock", default=None)


def current_clock() -> Clock | None:
    """Return the clock of the call that runs here; None if nobody limits it or can give it up."""
    return _current.get()


@contextlib.contextmanager
def on_clock(clock: Clock | None) -> Iterator[None]:
    """Measure what happens here, and in tasks that start here, on another clock; on none if it is None."""
    token = _current.set(clock)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Let the current clock stand."""
    clock = _current.get()
    if clock is not None:
        clock.stand()
    try:
        yield
    finally:
        if clock is not None:
            clock.go()


@contextlib.contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` if the current call is given up, from another thread; it must not wait for anything.

    Raises:
        GivenUp: The call was given up, before or meanwhile. Whatever else the work raised is dropped.
    """
    clock = _current.get()
    if clock is None:
        yield
        return
    if clock.given_up:
        raise GivenUp
    try:
        with _listening(clock, stop):
            yield
    finally:
        if clock.given_up:
            raise GivenUp from None


@contextlib.contextmanager
def _listening(clock: Clock, listen: Callable[[], object]) -> Iterator[None]:
    """Call `listen` if the clock is given up; now, if it was already."""
    with _lock:
        clock._stops.append(listen)
        if clock.given_up:
            listen()
    try:
        yield
    finally:
        with _lock:
            clock._stops.remove(listen)


def pause(seconds: float) -> None:
    """Sleep.

    Raises:
        GivenUp: The current call was given up.
    """
    woken = threading.Event()
    with stopping(woken.set):
        woken.wait(seconds)


class _Turn:
    """A caller of `Places` that waits or holds a place."""

    __slots__ = ("clock", "lost", "process", "ready")

    def __init__(self) -> None:
        self.clock = _current.get()
        self.ready = threading.Event()
        self.lost = False  # whether the caller was given up while it held the place
        self.process = os.getpid()


class Places:
    """A number of places for calls in threads, which wait in order while none is free.

    All places are free in a forked child.

    Args:
        count: Number of places.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.forget_parent()
        renew_after_fork(self)

    def forget_parent(self) -> None:
        self._free = self._count
        self._lost = 0  # places whose callers were given up, and may never leave
        self._queue: deque[_Turn] = deque()

    @property
    def waiting(self) -> int:
        """Number of calls that wait."""
        return len(self._queue)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold a place; the current clock stands while this call waits for it.

        If every place belongs to a call that was given up, and yet goes on, the clock does not stand: such a
        call may hold its place forever.

        Raises:
            GivenUp: The current call was given up, before or while it waited.
        """
        turn = _Turn()
        self._wait(turn)
        with contextlib.ExitStack() as stack:
            stack.callback(self._leave, turn)
            if turn.clock is not None:
                stack.enter_context(_listening(turn.clock, lambda: self._lose(turn)))
            yield

    def _wait(self, turn: _Turn) -> None:
        clock = turn.clock
        with _lock:
            if clock is not None and clock.given_up:
                raise GivenUp
            if self._free:
                self._free -= 1
                return
            self._queue.append(turn)
            if clock is not None and not self._stuck:
                clock.stand()
        try:
            with contextlib.nullcontext() if clock is None else _listening(clock, turn.ready.set):
                turn.ready.wait()
            if clock is not None and clock.given_up:
                raise GivenUp
        except BaseException:
            with _lock:
                if turn in self._queue:
                    self._queue.remove(turn)
                    self._resume(turn)
                else:
                    self._pass_on()
            raise

    def _leave(self, turn: _Turn) -> None:
        with _lock:
            if turn.process == os.getpid():  # else the place is one of the parent
                if turn.lost:
                    self._count_lost(-1)
                self._pass_on()

    def _pass_on(self) -> None:
        """Give a place that was left to the next call."""
        if self._queue:
            turn = self._queue.popleft()
            self._resume(turn)
            turn.ready.set()
        else:
            self._free += 1

    def _resume(self, turn: _Turn) -> None:
        if turn.clock is not None and not self._stuck:
            turn.clock.go()

    @property
    def _stuck(self) -> bool:
        return self._lost == self._count

    def _lose(self, turn: _Turn) -> None:
        turn.lost = True
        self._count_lost(1)

    def _count_lost(self, change: int) -> None:
        was_stuck = self._stuck
        self._lost += change
        if self._stuck != was_stuck:
            for turn in self._queue:
                if turn.clock is not None:
                    (turn.clock.go if self._stuck else turn.clock.stand)()


class Attempts:
    """Attempts to get something that may fail after a long wait, one at a time.

    A call that waited for an attempt shares its failure instead of making the next one.
    """

    def __init__(self) -> None:
        self._place = Places(1)
        self._failure: Exception | None = None
        self._failed_at = 0.0

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Wait for other attempts, then make one in the ``with`` block.

        Raises:
            GivenUp: The current call was given up.
            Exception: An attempt failed while this call waited for it.
        """
        asked = time.monotonic()
        with self._place.held():
            if self._failure is not None and self._failed_at >= asked:
                raise self._failure
            try:
                yield
            except Exception as error:
                if self._place.waiting:
                    self._failure, self._failed_at = error, time.monotonic()
                raise


def _forget() -> None:
    """Let no call of the parent run in a forked child."""
    global _lock
    _lock = threading.RLock()
    _current.set(None)


after_fork(_forget)
