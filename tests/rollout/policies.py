"""Stub of an inference engine that returns scripted responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gem_core.rollout import Generation


class ScriptedPolicy:
    """Returns the responses of a list, one after the other, and records every request.

    A response is a list of token ids, a `Generation`, or an exception to raise. After the last one, the list
    starts over. `before` is awaited before each response.
    """

    def __init__(
        self,
        script: Sequence[Generation | list[int] | Exception],
        *,
        before: Callable[[], asyncio.Future[None]] | None = None,
    ) -> None:
        self.script = list(script)
        self.before = before
        self.requests: list[tuple[list[int], int, str]] = []

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        answer = self.script[len(self.requests) % len(self.script)]
        self.requests.append((list(prompt_ids), max_tokens, request_id))
        await (self.before() if self.before else asyncio.sleep(0))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Generation):
            return answer
        return Generation(answer, [-0.5] * len(answer), "stop")
