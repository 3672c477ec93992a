"""`Batcher`: every caller gets a result or an error, however the batch ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from gem_core.errors import PolicyError
from gem_lab._engines.batching import Batcher

Run = Callable[[list[int]], Awaitable[Sequence[Any]]]


async def answers(batcher: Batcher[int, Any], *requests: int, seconds: float = 30.0) -> list[Any]:
    """Return results and errors of concurrent requests; TimeoutError for those that get neither."""
    asked = [asyncio.ensure_future(batcher(request)) for request in requests]
    await asyncio.wait(asked, timeout=seconds)
    found: list[Any] = []
    for task in asked:
        if not task.done():
            found.append(TimeoutError)
        else:
            found.append(task.exception() or task.result())
    return found


def test_concurrent_requests_share_batches() -> None:
    batches: list[list[int]] = []

    async def run(batch: list[int]) -> list[int]:
        batches.append(batch)
        await asyncio.sleep(0)
        return [10 * request for request in batch]

    assert asyncio.run(answers(Batcher(run), 1, 2, 3)) == [10, 20, 30]
    assert batches == [[1, 2, 3]]


async def _few(batch: list[int]) -> list[int]:
    return batch[:-1]


async def _none(batch: list[int]) -> list[int]:
    return []


async def _many(batch: list[int]) -> list[int]:
    return [*batch, 7]


async def _canceled(batch: list[int]) -> list[int]:
    raise asyncio.CancelledError


async def _cancels_itself(batch: list[int]) -> list[int]:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return batch


async def _cancels_a_future(batch: list[int]) -> list[int]:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future
    return batch


async def _nothing(batch: list[int]) -> Any:
    return None


async def _broken(batch: list[int]) -> list[int]:
    raise RuntimeError("the engine broke")


BAD: dict[str, tuple[Run, type[Exception], str]] = {
    "too few results": (_few, PolicyError, "expected a result for each of 3 requests, got 2 results"),
    "no results": (_none, PolicyError, "got 0 results"),
    "too many results": (_many, PolicyError, "got 4 results"),
    "CancelledError": (_canceled, PolicyError, "sampling was stopped: CancelledError"),
    "a cancel of the batch": (_cancels_itself, PolicyError, "sampling was stopped"),
    "a cancel of what it awaits": (_cancels_a_future, PolicyError, "sampling was stopped"),
    "None": (_nothing, TypeError, "NoneType"),
    "an error": (_broken, RuntimeError, "the engine broke"),
}


@pytest.mark.parametrize("case", BAD)
def test_no_caller_hangs(case: str) -> None:
    run, kind, message = BAD[case]
    batcher = Batcher(run)

    async def main() -> None:
        for _ in range(2):  # the batcher works on
            found = await answers(batcher, 1, 2, 3)
            assert [type(error) for error in found] == [kind] * 3
            assert all(message in str(error) for error in found)

    asyncio.run(main())


def test_requests_that_arrive_during_a_canceled_batch_get_an_error() -> None:
    async def main() -> list[Any]:
        begun = asyncio.Event()

        async def run(batch: list[int]) -> list[int]:
            begun.set()
            await asyncio.sleep(0.01)
            raise asyncio.CancelledError

        batcher = Batcher(run)
        first = asyncio.ensure_future(answers(batcher, 1))
        await begun.wait()
        return await answers(batcher, 2) + await first

    assert [type(error) for error in asyncio.run(main())] == [PolicyError] * 2


@pytest.mark.parametrize("end", ["canceled", "closed", "kept"])
def test_a_second_event_loop_after_the_first_was_stopped_in_a_batch(end: str) -> None:
    stuck = True

    async def run(batch: list[int]) -> list[int]:
        if stuck:
            await asyncio.get_running_loop().create_future()
        return batch

    batcher = Batcher(run)
    loops = [asyncio.new_event_loop(), asyncio.new_event_loop()]
    try:
        asked = loops[0].create_task(batcher(1))
        loops[0].run_until_complete(asyncio.sleep(0.01))
        tasks = asyncio.all_tasks(loops[0])
        if end == "canceled":
            for task in tasks:
                task.cancel()
            loops[0].run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            assert asked.cancelled()
        elif end == "closed":
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            loops[0].close()
        stuck = False
        assert loops[1].run_until_complete(answers(batcher, 2, 3)) == [2, 3]
        if end == "kept":
            for task in tasks:
                task.cancel()
            loops[0].run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            assert loops[0].run_until_complete(answers(batcher, 4)) == [4]
    finally:
        for loop in loops:
            loop.close()


def test_canceled_callers_do_not_affect_the_others() -> None:
    async def run(batch: list[int]) -> list[int]:
        await asyncio.sleep(0.01)
        return batch

    async def main() -> list[Any]:
        batcher = Batcher(run)
        asked = [asyncio.ensure_future(batcher(number)) for number in range(4)]
        await asyncio.sleep(0)
        asked[1].cancel()
        await asyncio.sleep(0.005)
        asked[2].cancel()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(main())
    assert (found[0], found[3]) == (0, 3)
    assert [type(found[number]) for number in (1, 2)] == [asyncio.CancelledError] * 2
