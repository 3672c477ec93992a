"""Stand-in for an inference engine: says what it was told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gem_core.rollout import Generation


class ScriptedPolicy:
    """Answers with the responses of a list, in turn, and records every request.

    A response is a list of token ids, a `Generation`, or an exception to raise. After the last one
    the script starts again. `before` is awaited before each answer.
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
