"""Oat's batched, blocking `generate` as a `gem_core.rollout.Policy`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeAlias

from gem_core.rollout import Generation
from gem_lab._engines.batching import Batcher

Sample: TypeAlias = Callable[[list[list[int]], list[int]], list[Generation]]
"""Takes prompts and the token limit of each response; returns one generation per prompt, in order."""


class BatchedPolicy:
    """Samples the requests of all running episodes in batches, while environments keep running.

    Args:
        sample: Calls the engine; never called with an empty batch or concurrently.
        thread: Executor that calls it.

    Attributes:
        seconds: Time spent in the engine.
    """

    def __init__(self, sample: Sample, thread: Executor) -> None:
        self._sample = sample
        self._thread = thread
        self._batcher = Batcher(self._run)
        self.seconds = 0.0

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        """Sample one response; an error of the engine is raised in every episode of its batch."""
        return await self._batcher((list(prompt_ids), max_tokens))

    async def _run(self, requests: list[tuple[list[int], int]]) -> list[Generation]:
        prompts, limits = [prompt for prompt, _ in requests], [limit for _, limit in requests]
        start = time.perf_counter()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._sample, prompts, limits)
        finally:
            self.seconds += time.perf_counter() - start
