"""`Batcher`: runs the requests of concurrent episodes in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


class Batcher(Generic[Request, Result]):
    """Runs the requests of concurrent callers in batches, one batch at a time.

        batcher = Batcher(run)
        result = await batcher(request)

    All pending requests form a batch. Requests that arrive while it runs form the next batch, so an episode
    with a slow environment does not delay the others.

    Args:
        run: Function that takes a batch and returns a result or an exception for each request, in order.
            Batches are never empty and never run concurrently. An exception that it raises is raised in every
            caller of the batch.
    """

    def __init__(self, run: Callable[[list[Request]], Awaitable[Sequence[Result | Exception]]]) -> None:
        self._run = run
        self._pending: list[tuple[Request, asyncio.Future[Result]]] = []
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, request: Request) -> Result:
        """Return the result of a request."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._pending.append((request, future))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.ensure_future(self._serve())
        return await future

    async def _serve(self) -> None:
        while self._pending:
            known = -1
            while known != len(self._pending):  # until no other episode adds a request
                known = len(self._pending)
                await asyncio.sleep(0)
            batch = [(request, future) for request, future in self._pending if not future.done()]
            self._pending = []
            if not batch:  # their callers were canceled
                continue
            results: Sequence[Result | Exception]
            try:
                results = await self._run([request for request, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
