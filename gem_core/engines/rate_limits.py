"""Patience with an endpoint: rate limits, back-off between attempts, and when to give up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between the first two attempts and the most between any two; in between they double."""


class RateLimit:
    """Spaces calls so that no more than `per_minute` units start in a minute.

    Units are requests or tokens. Calls are spread evenly, so there is no burst at the start of a minute.

    Args:
        per_minute: None for no limit.
        clock: Seconds that only grow.
        sleep: Waits.
    """

    def __init__(
        self, per_minute: float | None, *, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._seconds_a_unit = 0.0 if per_minute is None else 60.0 / per_minute
        self._clock = clock
        self._sleep = sleep
        self._free_at = 0.0

    async def wait(self, units: float = 1.0) -> None:
        """Return when `units` more may start."""
        if not self._seconds_a_unit:
            return
        now = self._clock()
        start = max(now, self._free_at)
        self._free_at = start + units * self._seconds_a_unit
        if start > now:
            await self._sleep(start - now)


class Patience:
    """How long to wait before a call is made again, and when to make it no more.

    A call that fails is made again as long as calls of anybody succeed; when none has for
    `give_up_after` seconds, the endpoint is dead. A call that fails `MOST_ATTEMPTS` times in a row
    while others succeed is not worth another one.

    Args:
        give_up_after: Seconds.
        clock: Seconds that only grow.
    """

    MOST_ATTEMPTS = 20

    def __init__(self, give_up_after: float, *, clock: Clock = time.monotonic) -> None:
        self._give_up_after = give_up_after
        self._clock = clock
        self._last_success = clock()
        self._random = Random()  # spreads the attempts of several calls; no result depends on it
        self.repeated = 0
        """Attempts that followed a failure."""

    def succeeded(self) -> None:
        """A call was answered."""
        self._last_success = self._clock()

    def pause(self, attempt: int, began: float, asked: float | None = None) -> float | None:
        """Seconds to wait before the next attempt of a call; None to give up.

        Args:
            attempt: How often the call has failed by now.
            began: When its first attempt began, by the clock.
            asked: What the endpoint asked for (``Retry-After``).
        """
        silent = self._clock() - max(began, self._last_success)
        if silent >= self._give_up_after or attempt >= self.MOST_ATTEMPTS:
            return None
        self.repeated += 1
        if asked is not None:
            return min(asked, 4 * LONGEST_PAUSE)
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (attempt - 1))
        return longest * self._random.uniform(0.5, 1.0)
