"""Rate limits of requests to an endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class RateLimit:
    """A rate limit that spaces calls evenly, so there is no burst at the start of a minute.

    Args:
        per_minute: Maximum number of units (requests or tokens) per minute; None for no limit.
        clock: Monotonic clock, in seconds.
        sleep: Coroutine function that waits for a number of seconds.
    """

    def __init__(
        self, per_minute: float | None, *, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._seconds_per_unit = 0.0 if per_minute is None else 60.0 / per_minute
        self._clock = clock
        self._sleep = sleep
        self._free_at = 0.0

    async def wait(self, units: float = 1.0) -> None:
        """Wait until a call of `units` may start."""
        if not self._seconds_per_unit:
            return
        now = self._clock()
        start = max(now, self._free_at)
        self._free_at = start + units * self._seconds_per_unit
        if start > now:
            await self._sleep(start - now)
