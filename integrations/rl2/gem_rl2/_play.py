"""An episode that can pause until RL2 has a response for it, or until RL2 resumes its engines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from gem_core._util.waiting import cancel_all
from gem_core.rollout import Episode


class Play:
    """One episode in a separate task, which advances only while `resume` is awaited."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Episode] | None = None
        self._waiting = asyncio.Event()
        self._answer: asyncio.Future[Any] | None = None

    def start(self, episode: Coroutine[Any, Any, Episode]) -> None:
        """Set the coroutine that plays the episode."""
        self._task = asyncio.ensure_future(episode)

    async def wait(self) -> Any:
        """Pause the policy of the episode until the next `resume`, and return its answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._waiting.set()
        return await self._answer

    async def resume(self, answer: Any = None) -> Episode | None:
        """Continue the episode until its policy waits again.

        Args:
            answer: Return value of `wait`.

        Returns:
            None if the policy waits; the episode if it has ended.

        Raises:
            asyncio.CancelledError: The caller was canceled. This ends the episode, and is raised when its
                environment is closed.
        """
        assert self._task is not None
        if self._answer is not None:
            if not self._answer.done():  # canceled
                self._answer.set_result(answer)
            self._answer = None
        self._waiting.clear()
        waiting = asyncio.ensure_future(self._waiting.wait())
        try:
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await cancel_all([self._task])
            raise
        finally:
            waiting.cancel()
        return self._task.result() if self._task.done() else None
