"""Calls that wait for a session, for one of its places, or for an attempt to open it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the package of the protocol")

from gem_core._util.waiting import within
from gem_envs.tools.mcp._config import server_config
from gem_envs.tools.mcp._pool import Holder, Pool

LIMIT = 0.1


class Stub:
    """A session whose calls are counted and whose tools answer at once."""

    dead = False

    def __init__(self) -> None:
        self.calls = 0

    async def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> str:
        self.calls += 1
        return name

    def close(self) -> None:
        self.dead = True

    async def closed(self) -> None:
        pass


def pool_with(session: Stub, **options: Any) -> Pool:
    pool = Pool(server_config("m", url="http://127.0.0.1:9/mcp", **options))

    async def opened(seconds: float) -> Stub:
        return session

    pool._open = opened  # type: ignore[method-assign,assignment]
    return pool


async def settled(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("own", [False, True])
def test_calls_that_wait_for_an_attempt_share_its_failure(own: bool) -> None:
    async def play() -> list[Any]:
        pool = Pool(server_config("m", url="http://127.0.0.1:9/mcp", connect_timeout=0.3))
        opened, open_ = [], pool._open

        async def counted(seconds: float) -> Any:
            opened.append(seconds)
            return await open_(seconds)

        pool._open = counted  # type: ignore[method-assign]
        holder = Holder(pool) if own else None
        replies = await asyncio.gather(*(pool.call(holder, "x", {}) for _ in range(8)))
        assert len(opened) == 1
        replies.append(await pool.call(holder, "x", {}))  # a later call makes an attempt of its own
        assert len(opened) == 2
        await pool.close()
        return [reply.problem for reply in replies]

    problems = asyncio.run(play())
    assert len(problems) == 9
    assert all("cannot be reached" in problem or "did not answer" in problem for problem in problems)


def test_who_stops_waiting_for_an_attempt_leaves_the_others_one() -> None:
    async def play() -> None:
        session = Stub()
        pool = Pool(server_config("m", url="http://127.0.0.1:9/mcp", connect_timeout=30))
        gate, opened = asyncio.Event(), []

        async def slow(seconds: float) -> Stub:
            opened.append(seconds)
            await gate.wait()
            return session

        pool._open = slow  # type: ignore[method-assign,assignment]
        calls = [asyncio.ensure_future(pool.call(None, "x", {})) for _ in range(5)]
        await settled(lambda: bool(opened))
        calls[0].cancel()  # which makes the attempt
        calls[3].cancel()
        await settled(lambda: len(opened) == 2)
        gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [
            True,
            False,
            False,
            True,
            False,
        ]
        assert session.calls == 3

    asyncio.run(play())


def test_waiting_for_a_call_of_others_does_not_count_and_who_leaves_calls_nothing() -> None:
    async def play() -> None:
        session = Stub()
        pool = pool_with(session, concurrency=2)
        await pool._calls.acquire()
        await pool._calls.acquire()
        calls = [asyncio.ensure_future(within(LIMIT, pool.call(None, "x", {}))) for _ in range(20)]
        await asyncio.sleep(3 * LIMIT)
        assert not any(call.done() for call in calls)
        for call in calls[5:]:
            call.cancel()
        pool._calls.release()
        pool._calls.release()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [reply.content for reply in results[:5]] == ["x"] * 5
        assert session.calls == 5
        assert (await pool.call(None, "y", {})).content == "y"

    asyncio.run(play())


def test_waiting_for_the_sessions_of_others_does_not_count() -> None:
    async def play() -> None:
        session = Stub()
        pool = pool_with(session, max_sessions=2, connect_timeout=30)
        first = [Holder(pool), Holder(pool)]
        for holder in first:
            await pool.call(holder, "x", {})
        others = [Holder(pool) for _ in range(20)]
        calls = [asyncio.ensure_future(within(LIMIT, pool.call(holder, "x", {}))) for holder in others]
        await asyncio.sleep(3 * LIMIT)
        assert not any(call.done() for call in calls)
        for call in calls[:-1]:
            call.cancel()
        await asyncio.gather(*calls[:-1], return_exceptions=True)
        session.dead = False
        await pool.release(first[0])
        session.dead = False
        assert (await calls[-1]).content == "x"
        await pool.release(first[1])
        await pool.release(others[-1])
        assert pool._places._value == 2

    asyncio.run(play())


def test_an_episode_that_has_ended_opens_no_session() -> None:
    async def play() -> None:
        pool = pool_with(Stub())
        holder = Holder(pool)
        assert (await pool.call(holder, "x", {})).content == "x"
        await pool.release(holder)
        assert await pool.call(holder, "x", {}) == (None, "the episode has ended")

    asyncio.run(play())
