"""Places, the clocks of the calls that wait for them, and giving up."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from gem_core._util.places import (
    Attempts,
    Clock,
    GivenUp,
    Places,
    current_clock,
    on_clock,
    pause,
    stopping,
    waiting,
)
from gem_core._util.threads import ThreadCall, ThreadPool, call_in
from gem_core._util.waiting import Overdue, within
from tests._util.test_forks import in_child


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(40, "gem-test")
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


# -- clocks ------------------------------------------------------------------------------------


def test_a_clock_stands_while_a_call_that_it_makes_waits() -> None:
    outer = Clock()
    inner = Clock(outer)
    other = Clock(outer)
    inner.stand()
    other.stand()
    before = outer.seconds
    time.sleep(0.02)
    inner.go()
    assert outer.seconds == before  # the other call waits
    other.stand()
    other.go()
    assert outer.seconds == before
    other.go()
    time.sleep(0.02)
    assert outer.seconds >= before + 0.02
    assert other.seconds < outer.seconds + 0.02


def test_a_call_that_has_ended_holds_no_other_clock_up() -> None:
    outer = Clock()
    inner = Clock(outer)
    inner.stand()
    inner.end()
    inner.go()
    before = outer.seconds
    time.sleep(0.01)
    assert outer.seconds > before
    outer.give_up()
    assert not inner.given_up


def test_a_call_is_given_up_when_all_its_callers_are() -> None:
    first, second = Clock(), Clock()
    shared = Clock(first)
    shared.join(second)
    below = Clock(shared)
    first.give_up()
    assert not below.given_up
    second.give_up()
    assert shared.given_up
    assert below.given_up
    assert Clock(second).given_up  # what it calls from now on


def test_a_caller_without_a_clock_gives_nothing_up() -> None:
    clock = Clock()
    shared = Clock(clock, None)
    clock.give_up()
    assert not shared.given_up
    shared.leave(None)  # now all the others are given up
    assert shared.given_up


def test_the_last_caller_that_waits_decides() -> None:
    gone, stays = Clock(), Clock()
    shared = Clock(gone, stays)
    gone.give_up()
    shared.leave(gone)
    assert not shared.given_up
    shared.stand()
    before = stays.seconds
    time.sleep(0.01)
    assert stays.seconds == before
    shared.leave(stays)
    time.sleep(0.01)
    assert stays.seconds > before


# -- stopping ----------------------------------------------------------------------------------


def test_work_is_told_once_and_ends_as_given_up() -> None:
    clock, told = Clock(), []

    def work() -> None:
        with stopping(lambda: told.append(1)):
            clock.give_up()
            clock.give_up()
            raise OSError("the connection ended")

    with on_clock(clock):
        with pytest.raises(GivenUp):
            work()
        assert told == [1]
        with pytest.raises(GivenUp):
            work()  # does not begin
        assert told == [1]
    with stopping(lambda: told.append(3)):  # without a clock
        pass
    assert current_clock() is None


def test_a_pause_ends_early(pool: ThreadPool) -> None:
    async def play() -> None:
        call = ThreadCall(lambda: pause(30), pool)
        with pytest.raises(Overdue):
            await call.outcome(0.05)
        with pytest.raises(GivenUp):
            await asyncio.wait_for(asyncio.wrap_future(call.future), 20)

    asyncio.run(play())
    pause(0.001)


# -- places ------------------------------------------------------------------------------------


def queue_of(places: Places, pool: ThreadPool, count: int, ran: list[int]) -> list[ThreadCall[int]]:
    """Return calls that wait for a place, in this order."""

    def work(index: int) -> int:
        with places.held():
            ran.append(index)
            return index

    calls = []
    for index in range(count):
        calls.append(ThreadCall(lambda index=index: work(index), pool))  # type: ignore[misc]
        wait_until(lambda index=index: places.waiting == index + 1)  # type: ignore[misc]
    return calls


def test_waiting_does_not_count_and_the_order_is_kept(pool: ThreadPool) -> None:
    places, ran = Places(1), list[int]()

    async def play() -> None:
        with places.held():
            calls = queue_of(places, pool, 5, ran)
            waiters = [asyncio.ensure_future(call.outcome(0.1)) for call in calls]
            await asyncio.sleep(0.3)
            assert not any(waiter.done() for waiter in waiters)
        assert [value for value, _ in await asyncio.gather(*waiters)] == [0, 1, 2, 3, 4]

    asyncio.run(play())
    assert ran == [0, 1, 2, 3, 4]


def test_who_gives_up_leaves_the_queue_and_never_runs(pool: ThreadPool) -> None:
    places, ran = Places(1), list[int]()
    with places.held():
        calls = queue_of(places, pool, 20, ran)
        for index, call in enumerate(calls):
            if index not in (3, 11):
                call.give_up()
        wait_until(lambda: places.waiting == 2)
        wait_until(lambda: sum(call.future.done() for call in calls) == 18)  # and so their threads are free
    assert [calls[index].future.result(30) for index in (3, 11)] == [(3, None), (11, None)]
    assert ran == [3, 11]
    with places.held():  # free again
        assert places.waiting == 0


def test_a_place_given_to_one_who_gives_up_goes_to_the_next(pool: ThreadPool) -> None:
    for _ in range(50):
        places, ran = Places(1), list[int]()
        with places.held():
            calls = queue_of(places, pool, 3, ran)
            giving = threading.Thread(target=calls[0].give_up)
            giving.start()
        assert calls[2].future.result(30) == (2, None)
        giving.join()
        wait_until(lambda places=places: places._free == 1)  # type: ignore[misc]


def test_a_call_that_was_given_up_takes_no_free_place() -> None:
    places, clock = Places(2), Clock()
    clock.give_up()
    with on_clock(clock), pytest.raises(GivenUp), places.held():
        pass
    with places.held(), places.held():
        pass


def test_waiting_counts_if_all_places_are_lost(pool: ThreadPool) -> None:
    """A program in this process cannot be stopped: the calls behind it time out instead of hanging."""
    places, gate = Places(1), threading.Event()

    def hang() -> None:
        with places.held():
            gate.wait(30)

    async def play() -> None:
        ran: list[int] = []
        hung = ThreadCall(hang, pool)
        wait_until(lambda: places._free == 0)
        (before,) = queue_of(places, pool, 1, ran)
        hung.give_up()
        with pytest.raises(Overdue):
            await before.outcome(0.1)
        wait_until(lambda: places.waiting == 0)
        (after,) = queue_of(places, pool, 1, ran)
        with pytest.raises(Overdue):
            await after.outcome(0.1)
        wait_until(lambda: places.waiting == 0)
        (last,) = queue_of(places, pool, 1, ran)
        gate.set()  # it goes on after all
        assert await last.outcome(5) == (0, None)
        assert ran == [0]
        with places.held():
            (next_one,) = queue_of(places, pool, 1, ran)
            waiter = asyncio.ensure_future(next_one.outcome(0.1))
            await asyncio.sleep(0.2)
            assert not waiter.done()  # it waits without counting again
        assert await waiter == (0, None)

    asyncio.run(play())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_all_places_are_free_in_a_child() -> None:
    places = Places(2)

    def take_all() -> bool:
        with places.held(), places.held():
            return places.waiting == 0

    clock = Clock()
    with on_clock(clock), places.held(), places.held():
        assert in_child(lambda: take_all() and current_clock() is None)
    assert take_all()


def test_a_limit_of_a_coroutine_does_not_count_waiting_below(pool: ThreadPool) -> None:
    places = Places(1)
    small = ThreadPool(1, "gem-test")

    def work() -> str:
        with places.held():
            return "done"

    async def play() -> list[str]:
        with places.held():
            tasks = [asyncio.ensure_future(within(0.1, call_in(small, work))) for _ in range(10)]
            await asyncio.sleep(0.3)  # one waits for the place, the others for the thread
            assert not any(task.done() for task in tasks)
            for task in tasks[2:]:
                task.cancel()
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks[:2])

    assert asyncio.run(play()) == ["done", "done"]
    small.shutdown()


def test_a_limit_counts_what_is_not_waiting() -> None:
    async def play() -> None:
        async def work() -> None:
            with waiting():
                await asyncio.sleep(0.1)
            await asyncio.sleep(30)

        began = time.monotonic()
        with pytest.raises(Overdue):
            await within(0.2, work())
        assert time.monotonic() - began >= 0.3

    asyncio.run(play())


# -- attempts ----------------------------------------------------------------------------------


def test_those_who_waited_for_an_attempt_share_its_failure(pool: ThreadPool) -> None:
    attempts, gate, made = Attempts(), threading.Event(), list[int]()

    def attempt() -> str:
        with attempts.one():
            made.append(1)
            if len(made) == 1:
                gate.wait(30)
                raise OSError("down")
            return "up"

    calls = [ThreadCall(attempt, pool) for _ in range(8)]
    wait_until(lambda: attempts._place.waiting == 7)
    gate.set()
    assert [str(call.future.result(30)[1]) for call in calls] == ["down"] * 8
    assert made == [1]
    assert attempt() == "up"  # a later call makes its own attempt
