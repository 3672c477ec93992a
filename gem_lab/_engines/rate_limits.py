"""Rate limits of requests to an endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from gem_core._util.places import waiting

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class RateLimit:
    """Rate limits of calls, which space them evenly, so there is no burst at the start of a minute.

    Calls wait in order. One that is canceled leaves the queue and takes nothing of the rate.

    Args:
        per_minute: Maximum number per minute of each kind of unit, such as requests and tokens; None for no
            limit.
        clock: Monotonic clock, in seconds.
        sleep: Coroutine function that waits for a number of seconds.
    """

    def __init__(
        self, *per_minute: float | None, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._seconds_per_unit = [0.0 if limit is None else 60.0 / limit for limit in per_minute]
        self._clock = clock
        self._sleep = sleep
        self._free_at = [0.0 for _ in per_minute]
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def wait(self, *units: float) -> None:
        """Wait until a call may start; no time limit of gem-core counts this time.

        Args:
            units: Number of units of each kind that the call takes.
        """
        if not any(self._seconds_per_unit):
            return
        asked = self._clock()
        with waiting():
            async with self._turn():
                while (left := (start := max(asked, *self._free_at)) - self._clock()) > 0:
                    await self._sleep(left)
                self._free_at = [
                    start + count * seconds
                    for count, seconds in zip(units, self._seconds_per_unit, strict=True)
                ]

    def _turn(self) -> asyncio.Lock:
        """Return the lock of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns = loop, asyncio.Lock()
        return self._turns[1]
