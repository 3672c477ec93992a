from __future__ import annotations

import asyncio

from gem_core.engines.rate_limits import RateLimit


class Clock:
    """Fake clock that only advances during sleep."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_calls_are_spread_over_the_minute():
    clock = Clock()
    limit = RateLimit(120, clock=clock, sleep=clock.sleep)
    starts = []

    async def calls() -> None:
        for _ in range(5):
            await limit.wait()
            starts.append(clock.now)
        clock.now += 60  # unused capacity does not accumulate
        for _ in range(2):
            await limit.wait()
            starts.append(clock.now)

    asyncio.run(calls())
    assert starts == [100, 100.5, 101, 101.5, 102, 162, 162.5]


def test_a_large_request_takes_its_share():
    clock = Clock()
    limit = RateLimit(600, clock=clock, sleep=clock.sleep)

    async def calls() -> float:
        await limit.wait(100)
        await limit.wait(1)
        return clock.now

    assert asyncio.run(calls()) == 110


def test_no_limit_waits_for_nothing():
    clock = Clock()
    asyncio.run(RateLimit(None, clock=clock, sleep=clock.sleep).wait(10**9))
    assert clock.now == 100
