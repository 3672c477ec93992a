"""Rate limits and retries of requests to an endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Maximum length in seconds of the first and of any later pause between attempts; pauses double each time."""


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


class Patience:
    """The rules for retries: how long to wait before a retry, and when to give up.

    A failed call is retried as long as any calls to the endpoint succeed. If no call has succeeded for
    `give_up_after` seconds, the endpoint counts as down. A call is abandoned after `MOST_ATTEMPTS` failed
    attempts, even if other calls succeed.

    Args:
        give_up_after: Seconds without a successful call after which to give up.
        clock: Monotonic clock, in seconds.
    """

    MOST_ATTEMPTS = 20

    def __init__(self, give_up_after: float, *, clock: Clock = time.monotonic) -> None:
        self._give_up_after = give_up_after
        self._clock = clock
        self._last_success = clock()
        self._random = Random()  # spreads the retries of concurrent calls; no result depends on it
        self.repeated = 0
        """Number of retries so far."""

    def succeeded(self) -> None:
        """Record that a call succeeded."""
        self._last_success = self._clock()

    def pause(self, attempt: int, began: float, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before the next attempt of a call; None to give up.

        Args:
            attempt: Number of failed attempts of the call so far.
            began: Clock time at which its first attempt began.
            retry_after: Seconds that the endpoint requested (``Retry-After``); None if it requested none.
        """
        silent = self._clock() - max(began, self._last_success)
        if silent >= self._give_up_after or attempt >= self.MOST_ATTEMPTS:
            return None
        self.repeated += 1
        if retry_after is not None:
            return min(retry_after, 4 * LONGEST_PAUSE)
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (attempt - 1))
        return longest * self._random.uniform(0.5, 1.0)
