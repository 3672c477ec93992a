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


def test_a_call_that_leaves_the_queue_never_runs(pool: ThreadPool) -> None:
    gate, ran = threading.Event(), list[int]()

    async def play() -> list[object]:
        hung = [pool.submit(gate.wait, 30) for _ in range(2)]
        wait_until(lambda: all(call.running() for call in hung))
        tasks = [asyncio.create_task(call_in(pool, functools.partial(ran.append, n))) for n in range(20)]
        raw = [pool.submit(ran.append, n) for n in range(20, 40)]
        await asyncio.sleep(0)
        for task in (*tasks[:10], *tasks[11:]):
            task.cancel()
        for future in raw[1:]:
            future.cancel()
        await asyncio.sleep(0)
        assert len(pool._waiting) == 2  # no one holds the others anymore
        assert running() == 2
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(play())
    wait_until(lambda: len(ran) == 2)
    assert sorted(ran) == [10, 20]
    assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 19


class NoThreads:
    """Lets no thread start, as a machine at its limit of processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = 0
        self._start = threading.Thread.start
        monkeypatch.setattr(threading.Thread, "start", lambda thread: self.start(thread))

    def start(self, thread: threading.Thread) -> None:
        if thread.name == "gem-test" and not self.allowed:
            raise RuntimeError("can't start new thread")
        self.allowed -= thread.name == "gem-test"
        self._start(thread)


def test_a_thread_that_cannot_start_fails_its_call_and_nothing_else(
    pool: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, ran = NoThreads(monkeypatch), list[str]()
    for _ in range(5):
        with pytest.raises(RuntimeError, match="can't start"):
            pool.submit(ran.append, "late")
        with pytest.raises(RuntimeError, match="can't start"):
            ThreadCall(lambda: ran.append("late"), pool)
    limit.allowed = 2
    assert pool.submit(lambda: "works").result(10) == "works"
    gate = threading.Event()
    calls = [pool.submit(gate.wait, 10) for _ in range(2)]
    wait_until(lambda: all(call.running() for call in calls))
    gate.set()
    pool.shutdown(timeout=10)
    wait_until(lambda: running() == 0)
    assert ran == []


def test_calls_whose_thread_cannot_be_replaced_fail(
    pool: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, gate = NoThreads(monkeypatch), threading.Event()
    limit.allowed = 2
    hung = [pool.submit(gate.wait, 10) for _ in range(2)]
    wait_until(lambda: all(call.running() for call in hung))
    behind = [pool.submit(lambda: "behind") for _ in range(3)]
    pool.abandon(hung[0])
    assert not any(call.done() for call in behind)  # the other thread may still run them
    pool.abandon(hung[1])
    for call in behind:
        with pytest.raises(RuntimeError, match="can't start"):
            call.result(10)
    limit.allowed = 1
    assert pool.submit(lambda: "recovered").result(10) == "recovered"
    gate.set()
    pool.shutdown(timeout=10)
    wait_until(lambda: running() == 0)


def test_a_thread_that_returns_takes_the_place_of_one_that_cannot_start(
    pool: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, gates = NoThreads(monkeypatch), [threading.Event(), threading.Event()]
    limit.allowed = 2
    hung = [pool.submit(gate.wait, 10) for gate in gates]
    wait_until(lambda: all(call.running() for call in hung))
    behind = pool.submit(lambda: "behind")
    pool.abandon(hung[0])
    gates[0].set()
    assert behind.result(10) == "behind"
    gates[1].set()


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
