"""Oat's batched, blocking `generate` as a `gem_core.rollout.Policy`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, TypeAlias

from gem_core.rollout import Generation

Sample: TypeAlias = Callable[[list[list[int]], list[int]], list[Generation]]
"""Prompts and the most tokens of each response in, one generation each out, in the same order."""


class _Request(NamedTuple):
    prompt_ids: list[int]
    max_tokens: int
    future: asyncio.Future[Generation]


class BatchedPolicy:
    """Samples the requests of all running episodes, batch after batch.

    The engine runs in another thread, so environments keep running. Requests that arrive while a batch is
    sampled form the next one, so an episode with a slow environment holds up no other.

    Args:
        sample: The engine; never called without a prompt, nor twice at the same time.
        thread: Where it is called.

    Attributes:
        seconds: Time spent in the engine.
    """

    def __init__(self, sample: Sample, thread: Executor) -> None:
        self._sample = sample
        self._thread = thread
        self._pending: list[_Request] = []
        self._serving: asyncio.Task[None] | None = None
        self.seconds = 0.0

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response; an error of the engine is raised in every episode of its batch."""
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._pending.append(_Request(list(prompt_ids), max_tokens, future))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.ensure_future(self._serve())
        return await future

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            known = -1
            while known != len(self._pending):  # until no other episode has anything to add
                known = len(self._pending)
                await asyncio.sleep(0)
            batch = [request for request in self._pending if not request.future.done()]
            self._pending = []
            if not batch:  # their episodes were cancelled
                continue
            prompts = [request.prompt_ids for request in batch]
            room = [request.max_tokens for request in batch]
            start = time.perf_counter()
            try:
                generations = await loop.run_in_executor(self._thread, self._sample, prompts, room)
            except Exception as error:
                _settle(batch, [error] * len(batch))
            else:
                _settle(batch, generations)
            self.seconds += time.perf_counter() - start


def _settle(batch: list[_Request], outcomes: Sequence[Generation | Exception]) -> None:
    for request, outcome in zip(batch, outcomes, strict=True):
        if request.future.done():
            continue
        if isinstance(outcome, Exception):
            request.future.set_exception(outcome)
        else:
            request.future.set_result(outcome)
