from __future__ import annotations

import asyncio

import pytest

from gem_chat._concurrency import play_tasks
from tests.eval.traces import episode


def test_order_and_the_most_at_once():
    running, most = 0, 0

    async def play(number, task):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (10 - task))
        running -= 1
        return episode(seed=task)

    episodes = asyncio.run(play_tasks(range(10), play, at_once=3))
    assert [one.seed for one in episodes] == list(range(10))
    assert most == 3


def test_the_first_error_stops_the_others():
    ended = []

    async def play(number, task):
        try:
            if number == 1:
                raise ConnectionError("gone")
            await asyncio.sleep(3600)
        finally:
            ended.append(number)

    with pytest.raises(ConnectionError, match="gone"):
        asyncio.run(play_tasks(range(5), play, at_once=3))
    assert set(ended) >= {0, 1, 2}
    assert 4 not in ended  # it never started
