"""The pool of daemon threads for blocking calls."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Iterator

import pytest

from gem_core._util import threads as module
from gem_core._util.threads import ThreadCall, ThreadPool, call_in, in_thread
from gem_core._util.waiting import Overdue


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(2, "gem-test")
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)


def running() -> int:
    return sum(thread.name == "gem-test" for thread in threading.enumerate())


def wait_until(condition: object) -> None:
    end = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_threads_start_when_needed_and_are_reused(pool: ThreadPool) -> None:
    assert running() == 0
    first = [pool.submit(threading.get_ident).result() for _ in range(5)]
    assert len(set(first)) == 1
    gate = threading.Event()
    calls = [pool.submit(gate.wait, 10) for _ in range(4)]
    assert running() == 2
    gate.set()
    assert all(call.result(10) for call in calls)


def test_a_larger_pool_starts_the_calls_that_wait(pool: ThreadPool) -> None:
    gate = threading.Event()
    calls = [pool.submit(gate.wait, 10) for _ in range(5)]
    wait_until(lambda: sum(call.running() for call in calls) == 2)
    pool.resize(4)
    wait_until(lambda: sum(call.running() for call in calls) == 4)
    assert pool.size == len(pool._threads) == 4
    gate.set()
    assert all(call.result(10) for call in calls)


def test_what_a_call_raises_reaches_the_caller(pool: ThreadPool) -> None:
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(10)
    assert pool.submit(lambda: 7).result(10) == 7


def test_an_abandoned_call_keeps_its_thread_and_a_new_one_replaces_it(pool: ThreadPool) -> None:
    gate = threading.Event()
    hung = [pool.submit(gate.wait, 10) for _ in range(2)]
    wait_until(lambda: all(call.running() for call in hung))
    behind = pool.submit(lambda: "next")
    assert not behind.done()
    pool.abandon(hung[0])
    assert behind.result(10) == "next"
    gate.set()
    assert all(call.result(10) for call in hung)
    wait_until(lambda: running() == 2)  # the abandoned thread ended with its call


def test_threads_without_work_end(pool: ThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.05)
    assert pool.submit(lambda: 1).result(10) == 1
    wait_until(lambda: running() == 0)
    assert pool.submit(lambda: 2).result(10) == 2


def test_shutdown_drops_what_has_not_begun_and_waits_no_longer_than_asked(pool: ThreadPool) -> None:
    gate = threading.Event()
    hung = [pool.submit(gate.wait, 10) for _ in range(2)]
    waiting = pool.submit(lambda: 1)
    wait_until(lambda: all(call.running() for call in hung))
    start = time.monotonic()
    pool.shutdown(cancel_futures=True, timeout=0.1)
    assert time.monotonic() - start < 5
    assert waiting.cancelled()
    gate.set()
    wait_until(lambda: running() == 0)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(lambda: 1)


def test_a_call_that_takes_too_long_is_overdue_from_its_start(pool: ThreadPool) -> None:
    async def play() -> list[str]:
        gate = threading.Event()
        calls = [ThreadCall(functools.partial(gate.wait, 10), pool) for _ in range(2)]
        late = ThreadCall(lambda: "late", pool)  # waits for a thread longer than its timeout
        results = []
        for call in calls:
            with pytest.raises(Overdue):
                await call.outcome(0.3)
            results.append("overdue")
        value, error = await late.outcome(0.2)
        assert error is None
        gate.set()
        return [*results, str(value)]

    assert asyncio.run(play()) == ["overdue", "overdue", "late"]


def test_exceptions_of_async_callers() -> None:
    def stop() -> None:
        raise StopIteration("as a value")

    async def call() -> None:
        assert await in_thread(divmod, 7, 2) == (3, 1)
        value, error = await ThreadCall(stop).outcome()
        assert value is None
        assert isinstance(error, StopIteration)
        with pytest.raises(SystemExit):
            await in_thread(exec, "raise SystemExit(3)")

    asyncio.run(call())


def test_a_canceled_caller_abandons_its_call(pool: ThreadPool) -> None:
    async def play() -> str:
        gate, both = threading.Event(), threading.Barrier(3)

        def hang() -> None:
            both.wait(30)
            gate.wait(10)

        tasks = [asyncio.create_task(call_in(pool, hang)) for _ in range(2)]
        await asyncio.to_thread(both.wait, 30)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            return await call_in(pool, lambda: "free")
        finally:
            gate.set()

    assert asyncio.run(play()) == "free"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_starts_with_fresh_threads(pool: ThreadPool) -> None:
    assert pool.submit(lambda: 1).result(10) == 1
    with pool._lock:  # held at the fork, and never released in the child
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if pool.submit(lambda: 5).result(10) == 5 else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
