from __future__ import annotations

import asyncio
import itertools

import pytest

from gem_core._util.waiting import within
from gem_lab._engines.rate_limits import RateLimit


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
            await limit.wait(1)
            starts.append(clock.now)
        clock.now += 60  # unused capacity does not accumulate
        for _ in range(2):
            await limit.wait(1)
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


class Timeline:
    """Fake clock that advances when told to, with a sleep that can be canceled."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        end = round(self.now + seconds, 6)
        while self.now < end:
            self.now = round(self.now + 0.01, 6)
            for _ in range(50):  # so that everything happens that can
                await asyncio.sleep(0)


def test_a_canceled_wait_takes_nothing_of_the_rate():
    """Twenty callers at 100 calls per second, with 0.1 s of patience: the queue takes 0.2 s."""
    clock = Timeline()
    limit = RateLimit(6000, clock=clock, sleep=clock.sleep)
    starts: list[float] = []

    async def caller() -> None:
        while True:
            call = asyncio.ensure_future(limit.wait(1))
            end = clock.now + 0.1
            try:
                while not call.done() and clock.now < end:
                    await asyncio.sleep(0)
            finally:
                call.cancel()
            await asyncio.sleep(0)
            if not call.cancelled():
                starts.append(clock.now)

    async def play() -> None:
        callers = [asyncio.ensure_future(caller()) for _ in range(20)]
        await clock.advance(1)
        for task in callers:
            task.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        last = asyncio.ensure_future(limit.wait(1))
        await clock.advance(0.02)
        assert last.done()

    asyncio.run(play())
    assert len(starts) >= 95
    assert all(later - earlier > 0.009 for earlier, later in itertools.pairwise(starts))


def test_a_call_that_waits_for_tokens_takes_no_request():
    clock = Timeline()
    limit = RateLimit(600, 60, clock=clock, sleep=clock.sleep)  # ten requests and one token per second

    async def play() -> list[float]:
        await limit.wait(1, 5)
        calls = [asyncio.ensure_future(limit.wait(1, 5)) for _ in range(20)]
        await clock.advance(0.5)
        for call in calls[:-1]:
            call.cancel()
        await clock.advance(5)
        assert calls[-1].done()
        last = asyncio.ensure_future(limit.wait(1, 0))
        while not last.done():
            await clock.advance(0.1)
        return [clock.now]

    assert asyncio.run(play()) == pytest.approx([110], abs=0.11)


def test_the_time_of_waiting_for_the_rate_is_not_that_of_a_limit():
    limit = RateLimit(60 * 20)

    async def play() -> int:
        calls = [within(0.1, limit.wait(1)) for _ in range(10)]
        return len(await asyncio.gather(*calls))

    assert asyncio.run(play()) == 10


def test_a_limit_outlives_an_event_loop():
    limit = RateLimit(60 * 1000)

    async def play() -> None:
        await asyncio.gather(*(limit.wait(1) for _ in range(5)))

    for _ in range(2):
        asyncio.run(play())


def test_no_limit_waits_for_nothing():
    clock = Clock()
    asyncio.run(RateLimit(None, clock=clock, sleep=clock.sleep).wait(10**9))
    assert clock.now == 100
