"""`within`: limits, cancels at every moment, and results that nobody receives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gem_core._util.waiting import Overdue, within


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_result_and_an_error_pass_through() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 3

    async def fail() -> int:
        raise TimeoutError("of the call itself")

    assert asyncio.run(within(5, answer())) == 3
    assert asyncio.run(within(None, answer())) == 3
    with pytest.raises(TimeoutError, match="of the call itself"):
        asyncio.run(within(5, fail()))


def test_the_limit_cancels_the_call_and_waits_for_its_end() -> None:
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await _turns(3)
            ended.append(True)

    began = time.monotonic()
    with pytest.raises(Overdue):
        asyncio.run(within(0.01, slow()))
    assert ended == [True]
    assert time.monotonic() - began < 30


def test_a_call_that_answers_when_it_is_canceled_is_not_overdue() -> None:
    async def late() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "late"
        return "never"

    assert asyncio.run(within(0.01, late())) == "late"


def _cancel_at(turn: int, work: Callable[[], Coroutine[Any, Any, str]]) -> tuple[str, bool]:
    """Cancel `work` after `turn` turns of the event loop; return how it ended, and if it was canceled."""

    async def main() -> tuple[str, bool]:
        task = asyncio.ensure_future(work())
        await _turns(turn)
        canceled = task.cancel()
        try:
            return await task, canceled
        except asyncio.CancelledError:
            return "canceled", canceled

    return asyncio.run(main())


@pytest.mark.parametrize("seconds", [60.0, None])
@pytest.mark.parametrize("fails", [False, True])
def test_no_cancel_is_lost_in_any_turn_of_the_event_loop(seconds: float | None, fails: bool) -> None:
    outcomes = []
    for turn in range(1, 14):
        open_calls = 0

        async def call() -> str:
            nonlocal open_calls
            open_calls += 1
            try:
                await _turns(4)
            finally:
                open_calls -= 1
            if fails:
                raise ValueError
            return "done"

        async def work() -> str:
            try:
                return await within(seconds, call())
            except ValueError:
                return "done"

        outcome, canceled = _cancel_at(turn, work)
        assert outcome == ("canceled" if canceled else "done")
        assert open_calls == 0
        outcomes.append(outcome)
    assert {"canceled", "done"} == set(outcomes)


def test_a_result_that_nobody_receives_is_given_back() -> None:
    returned: list[str] = []
    kept: list[str] = []
    for turn in range(1, 14):

        async def take() -> str:
            await _turns(3)
            kept.append("place")
            return kept.pop()

        async def work() -> str:
            place = await within(60, take(), unused=returned.append)
            kept.append(place)
            return place

        _cancel_at(turn, work)
    assert len(returned) >= 1
    assert len(kept) >= 1


def test_a_call_that_ignores_cancels_is_waited_for_and_the_cancel_is_kept() -> None:
    async def stubborn() -> None:
        for _ in range(3):
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue

    async def main() -> bool:
        task = asyncio.ensure_future(within(60, stubborn()))
        for _ in range(2):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert asyncio.run(main())


def test_an_awaited_future_of_somebody_else_is_canceled_too() -> None:
    async def main() -> bool:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(Overdue):
            await within(0.01, future)
        return future.cancelled()

    assert asyncio.run(main())
