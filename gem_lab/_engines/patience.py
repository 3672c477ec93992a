"""`Patience`: when a failed request to an endpoint is repeated, and when the endpoint counts as down."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Maximum length in seconds of the first and of any later pause between attempts; pauses double each time."""


class Patience:
    """The rules for retries: how long to wait before a retry, and when to give up.

    A failed call is retried as long as any calls to the endpoint succeed. The endpoint counts as down if a
    call has failed `LEAST_ATTEMPTS` times and no call has succeeded for `give_up_after` seconds, counted from
    the first failure: the time that an answer takes is not silence. A call is abandoned after `MOST_ATTEMPTS`
    failed attempts, even if other calls succeed.

    Args:
        give_up_after: Seconds without a successful call after which to give up.
        clock: Monotonic clock, in seconds.
    """

    LEAST_ATTEMPTS = 3
    MOST_ATTEMPTS = 20

    def __init__(self, give_up_after: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._give_up_after = give_up_after
        self._clock = clock
        self._last_success = clock()
        self._random = Random()  # spreads the retries of concurrent calls; no result depends on it
        self.repeated = 0
        """Number of retries so far."""

    def now(self) -> float:
        """Return the time of the clock."""
        return self._clock()

    def succeeded(self) -> None:
        """Record that a call succeeded."""
        self._last_success = self._clock()

    def pause(self, attempt: int, failed_at: float, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before the next attempt of a call; None to give up.

        Args:
            attempt: Number of failed attempts of the call so far.
            failed_at: Clock time at which its first attempt failed.
            retry_after: Seconds that the endpoint requested (``Retry-After``); None if it requested none.
        """
        silent = self._clock() - max(failed_at, self._last_success)
        down = silent >= self._give_up_after and attempt >= self.LEAST_ATTEMPTS
        if down or attempt >= self.MOST_ATTEMPTS:
            return None
        self.repeated += 1
        if retry_after is not None:
            return min(retry_after, 4 * LONGEST_PAUSE)
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (attempt - 1))
        return longest * self._random.uniform(0.5, 1.0)
