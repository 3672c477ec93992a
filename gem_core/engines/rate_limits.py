"""Rate limits and retries of requests to an endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

from gem_core._util.places import waiting

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Maximum length in seconds of the first and of any later pause between attempts; pauses double each time."""


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
