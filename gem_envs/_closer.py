"""`Closer`: closes objects in threads."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

from gem_core._util.closing import run_aside
from gem_core._util.owners import after_calls

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 30.0
"""Number of seconds that a server that ends waits for the closes of its environments."""


class Closer:
    """Closes objects in threads of their own, so that no close can hold up an event loop or another close.

    May be used from any thread. A close that fails is logged.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: set[Future[None]] = set()

    def start(self, close: Callable[[], object], owner: object | None = None) -> None:
        """Start closing an object.

        Args:
            close: Closes it.
            owner: What calls in threads may still work for (see `gem_core._util.owners.calls_of`); `close`
                is called once they have returned. None means nothing.
        """
        done: Future[None] = Future()
        with self._lock:
            self._pending.add(done)

        def run() -> None:
            try:
                close()
            except (Exception, SystemExit):
                logger.warning("closing an environment failed", exc_info=True)
            finally:
                with self._lock:
                    self._pending.discard(done)
                done.set_result(None)

        if owner is None:
            run_aside(run)
        else:
            after_calls(owner, lambda: run_aside(run))

    def wait(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait until everything is closed; what has not returned in time is logged and abandoned."""
        with self._lock:
            pending = set(self._pending)
        if left := wait(pending, timeout=seconds).not_done:
            logger.warning("%d environments were not closed within %g s", len(left), seconds)

    async def finished(self, seconds: float = CLOSE_SECONDS) -> None:
        """`wait` for coroutines."""
        with self._lock:
            pending = [asyncio.wrap_future(done) for done in self._pending]
        left = (await asyncio.wait(pending, timeout=seconds))[1] if pending else ()
        if left:
            logger.warning("%d environments were not closed within %g s", len(left), seconds)
