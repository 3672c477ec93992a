"""Searches by many callers at the same time: who shares, who waits, and who leaves."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from gem_core._util.waiting import Overdue, within
from gem_core.errors import ServiceError
from gem_envs.tools._http import HttpClient
from gem_envs.tools.search import Hit, Searcher
from tests._util.test_forks import in_child
from tests.tools.search.stub import StubSearch

LIMIT = 0.2


class Gated(Searcher):
    """Answers when its gate opens; queries with "quick" at once, and with "broken" with an error."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.gate = threading.Event()
        self.asked: list[str] = []

    def find(self, query: str, k: int) -> list[Hit]:
        self.asked.append(query)
        if "quick" not in query:
            assert self.gate.wait(30)
        if "broken" in query:
            raise ServiceError("down")
        return [Hit({"id": query, "title": "", "text": query}, 1.0)] * k


async def settled(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("cache", [0, 10])
def test_equal_queries_take_one_thread(cache: int) -> None:
    searcher = Gated(concurrency=2, cache=cache)

    async def play() -> None:
        same = [asyncio.ensure_future(searcher.asearch("slow")) for _ in range(16)]
        await settled(lambda: searcher.asked == ["slow"])
        assert await asyncio.wait_for(searcher.asearch("quick"), 30)
        with ThreadPoolExecutor(4) as threads:  # callers that are not coroutines share it, too
            sync = [threads.submit(searcher.search, "slow") for _ in range(4)]
            await asyncio.sleep(0.05)
            searcher.gate.set()
            results = [*await asyncio.gather(*same), *(future.result(30) for future in sync)]
        results[0].clear()
        assert [len(hits) for hits in results[1:]] == [3] * 19  # each caller gets its own list
        assert searcher.asked.count("slow") == 1
        assert await searcher.asearch("slow", 1) != await searcher.asearch("slow", 2)

    asyncio.run(play())
    searcher.close()


def test_callers_of_a_failed_search_share_its_error() -> None:
    searcher = Gated(concurrency=1)

    async def play() -> None:
        calls = [asyncio.ensure_future(searcher.asearch("broken")) for _ in range(5)]
        await settled(lambda: bool(searcher.asked))
        searcher.gate.set()
        assert [str(error) for error in await asyncio.gather(*calls, return_exceptions=True)] == ["down"] * 5
        with pytest.raises(ServiceError):
            await searcher.asearch("broken")
        assert searcher.asked == ["broken"] * 2

    asyncio.run(play())
    searcher.close()


def test_a_search_goes_on_until_its_last_caller_leaves() -> None:
    searcher = Gated(concurrency=1)

    async def play() -> None:
        first, second = (asyncio.ensure_future(searcher.asearch("shared")) for _ in range(2))
        await settled(lambda: searcher.asked == ["shared"])
        waiting = [asyncio.ensure_future(searcher.asearch("waits")) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        for call in waiting:
            call.cancel()
        await asyncio.gather(first, *waiting, return_exceptions=True)
        assert not searcher._threads._waiting
        searcher.gate.set()
        assert len(await second) == 3
        again = asyncio.ensure_future(searcher.asearch("waits, quick"))
        assert len(await again) == 3
        assert searcher.asked == ["shared", "waits, quick"]

    asyncio.run(play())
    searcher.close()


def test_waiting_for_a_search_does_not_count_and_who_leaves_searches_nothing() -> None:
    searcher = Gated(concurrency=2)

    def busy() -> int:
        return sum(thread.name == "gem-search" for thread in threading.enumerate())

    async def play() -> None:
        before = busy()
        blocking = [asyncio.ensure_future(searcher.asearch(f"blocks {n}")) for n in range(2)]
        await settled(lambda: len(searcher.asked) == 2)
        calls = [asyncio.ensure_future(within(LIMIT, searcher.asearch(f"{n}"))) for n in range(20)]
        await asyncio.sleep(2 * LIMIT)
        assert not any(call.done() for call in calls)
        for call in calls[5:]:
            call.cancel()
        await asyncio.gather(*calls[5:], return_exceptions=True)
        assert len(searcher._threads._waiting) == 5
        assert busy() - before <= 2
        searcher.gate.set()
        assert len(await asyncio.gather(*blocking, *calls[:5])) == 7
        assert sorted(searcher.asked[2:]) == ["0", "1", "2", "3", "4"]

    asyncio.run(play())
    searcher.close()


def test_a_search_that_takes_too_long_is_overdue_for_all_who_share_it() -> None:
    searcher = Gated(concurrency=2)

    async def play() -> None:
        calls = [asyncio.ensure_future(within(LIMIT, searcher.asearch("slow"))) for _ in range(4)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [Overdue] * 4
        assert await searcher.asearch("quick")

    asyncio.run(play())
    searcher.gate.set()
    searcher.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("cache", [0, 10])
def test_a_child_searches_what_its_parent_is_searching(cache: int) -> None:
    searcher = Gated(concurrency=2, cache=cache)
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(searcher.search, query) for query in ("a", "a", "b")]
        while len(searcher.asked) < 2:
            time.sleep(0.005)

        def child() -> bool:
            searcher.gate = threading.Event()
            searcher.gate.set()
            return len(searcher.search("a")) == 3 and len(asyncio.run(searcher.asearch("c"))) == 3

        try:
            assert in_child(child)
        finally:
            searcher.gate.set()
        assert all(len(call.result(30)) == 3 for call in calls)
    searcher.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_asks_a_server_that_all_connections_of_its_parent_are_asking() -> None:
    with StubSearch((200, {}, {"result": []})) as server:
        client = HttpClient(server.url, connections=2, timeout=20, retries=0)

        def ask() -> bool:
            return client.post("/retrieve", {"queries": []}) == {"result": []}

        assert ask()
        with client._free.held(), client._free.held(), client._lock:
            assert in_child(ask)
        assert ask()
        assert server.connections == 2  # the child did not use that of its parent
        client.close()
