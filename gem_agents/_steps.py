"""`Steps`: the actions of an agent in the environment, and their rewards."""

from __future__ import annotations

import asyncio
from typing import Any

from gem_agents._api import Refused
from gem_agents._turns import ModelCall
from gem_core import Observation
from gem_core._observations import encodable, observation_text
from gem_core.errors import EnvError
from gem_core.rollout._calls import EnvCalls
from gem_core.rollout._limits import LengthCut
from gem_core.rollout._trajectory import StopReason
from gem_envs._background import on_loop
from gem_envs.sandbox._shell import File


class Steps:
    """Steps the environment of one episode, one action at a time.

    Args:
        calls: The environment.
        loop: Its event loop.
        on_length_cut: As in `EpisodeLimits`.

    Attributes:
        taken: Number of steps.
        ended: Why the environment ended the episode; None while it runs.
        observation: The last observation; None before the first step.
        failure: Error of the environment; None if there was none.
    """

    def __init__(self, calls: EnvCalls, loop: asyncio.AbstractEventLoop, on_length_cut: LengthCut) -> None:
        self._calls, self._loop, self._on_length_cut = calls, loop, on_length_cut
        self._one = asyncio.Lock()
        self._running: set[asyncio.Task[dict[str, Any]]] = set()
        self._lost: dict[tuple[ModelCall, str], asyncio.Task[dict[str, Any]]] = {}
        self._closed = False
        self.taken = 0
        self.ended: StopReason | None = None
        self.observation: Observation | None = None
        self.failure: EnvError | None = None

    def begin(self, call: ModelCall, action: str) -> asyncio.Task[dict[str, Any]]:
        """Start a step, which goes on if the agent hangs up; the agent's next try gets its result."""
        task = self._lost.pop((call, action), None) or asyncio.ensure_future(self.take(call, action))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def lose(self, call: ModelCall, action: str, task: asyncio.Task[dict[str, Any]]) -> None:
        """Keep a step whose result the agent did not get."""
        self._lost[call, action] = task

    async def close(self) -> None:
        """Wait until no step runs, and take no more."""
        self._closed = True
        while self._running:
            await asyncio.wait(self._running)

    async def take(self, call: ModelCall, action: str) -> dict[str, Any]:
        """Take a step for a response, and return what the agent sees of it: never the reward.

        Raises:
            Refused: The environment has ended, or failed.
        """
        cut = call.reply.finish_reason == "length" and self._on_length_cut == "invalid"
        return await self._take(call, action, cut)

    async def _take(self, call: ModelCall, action: str, cut: bool) -> dict[str, Any]:
        async with self._one:
            if self.ended is not None or self.failure is not None or self._closed:
                raise Refused(400, "episode_over", "the episode is over: the environment has ended")
            action = "" if cut else encodable(action)
            try:
                result = await on_loop(self._loop, self._calls.step(action))
            except EnvError as error:
                self.failure = error
                raise Refused(400, "episode_over", "the environment failed") from error
            call.action = action
            call.reward += result.reward
            call.info.update(result.info)
            if cut:
                call.info["invalid"] = "length"
            self.taken += 1
            self.observation = result.observation
            if result.terminated or result.truncated:
                self.ended = "terminated" if result.terminated else "truncated"
            return {"observation": observation_text(result.observation), "done": self.ended is not None}

    async def take_last(self, call: ModelCall) -> None:
        """Take the text of the last response as the action, after the agent has ended."""
        self._closed = False
        try:
            await self.take(call, call.message.content)
        except Refused:  # `failure` says why
            return

    async def hand_in(self, call: ModelCall, folder: EnvCalls, files: dict[str, File] | None) -> None:
        """Grade the files that the agent left, as the action of its last response.

        Args:
            call: The response.
            folder: The environment that takes the files.
            files: The files; None if they cannot be read.
        """
        self._closed = False
        try:
            action = await on_loop(self._loop, folder.call("hand_in_folder", files))
            await self._take(call, action, cut=False)
        except EnvError as error:
            self.failure = error
        except Refused:  # `failure` says why
            return
