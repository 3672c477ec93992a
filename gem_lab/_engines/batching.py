"""`Batcher`: runs the requests of concurrent episodes in batches."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from gem_core.errors import PolicyError

Request = TypeVar("Request")
Result = TypeVar("Result")


class Batcher(Generic[Request, Result]):
    """Runs the requests of concurrent callers in batches, one batch at a time.

        batcher = Batcher(run)
        result = await batcher(request)

    All pending requests form a batch. Requests that arrive while it runs form the next batch, so an episode
    with a slow environment does not delay the others. Every caller gets a result or an error, however `run`
    ends. Each event loop has its own batches, so a loop that was stopped in a batch does not affect the next.

    Args:
        run: Function that takes a batch and returns a result or an exception for each request, in order.
            Batches of an event loop are never empty and never run concurrently. An exception that it raises
            is raised in every caller of the batch.
    """

    def __init__(self, run: Callable[[list[Request]], Awaitable[Sequence[Result | Exception]]]) -> None:
        self._run = run
        self._lanes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane[Request, Result]] = (
            weakref.WeakKeyDictionary()
        )

    async def __call__(self, request: Request) -> Result:
        """Return the result of a request.

        Raises:
            PolicyError: `run` returned another number of results, or was canceled or interrupted.
            Exception: The exception of the request or of its batch.
        """
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane()
        future: asyncio.Future[Result] = loop.create_future()
        lane.pending.append((request, future))
        if lane.serving is None or lane.serving.done():
            lane.serving = asyncio.ensure_future(self._serve(lane))
        return await future

    async def _serve(self, lane: _Lane[Request, Result]) -> None:
        batch: list[tuple[Request, asyncio.Future[Result]]] = []
        try:
            while lane.pending:
                known = -1
                while known != len(lane.pending):  # until no other episode adds a request
                    known = len(lane.pending)
                    await asyncio.sleep(0)
                batch = [(request, future) for request, future in lane.pending if not future.done()]
                lane.pending = []
                if not batch:  # their callers were canceled
                    continue
                try:
                    results = await self._run([request for request, _ in batch])
                    if len(results) != len(batch):
                        raise PolicyError(
                            f"expected a result for each of {len(batch)} requests, got {len(results)} results"
                        )
                except Exception as error:
                    results = [error] * len(batch)
                for (_, future), result in zip(batch, results, strict=True):
                    if future.done():
                        continue
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        except GeneratorExit:  # destroyed with its event loop, and so are the callers
            raise
        except BaseException as error:  # a cancel or an interrupt
            for _, future in (*batch, *lane.pending):
                if not future.done():
                    future.set_exception(PolicyError(f"sampling was stopped: {error!r}"))
            lane.pending = []
            raise


class _Lane(Generic[Request, Result]):
    """The requests of one event loop that wait for the next batch, and the task that runs the batches."""

    def __init__(self) -> None:
        self.pending: list[tuple[Request, asyncio.Future[Result]]] = []
        self.serving: asyncio.Task[None] | None = None
