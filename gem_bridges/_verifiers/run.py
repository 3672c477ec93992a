"""`VerifiersRun`: one run of a verifiers environment that pauses whenever its agent must reply.

The environment runs in an event loop in a thread. Instead of calling a model, it passes the conversation so
far to the caller and receives the caller's text as the reply: there is no harness, sandbox, or endpoint.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from verifiers.v1.agent import Segment
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.episode import EnvInfo, Episode
from verifiers.v1.graph import MessageNode
from verifiers.v1.session import hook_boundary
from verifiers.v1.state import state_cls
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, SystemMessage, UserMessage

from gem_core._util.messages import error_line
from gem_core.errors import ConfigError, EnvError
from gem_envs.tools._loop import background, submit


class VerifiersRun:
    """One run of an environment over one task.

    Args:
        env: Environment of verifiers, with a single agent.
        task: Task of its taskset.
        timeout: Seconds to wait for the environment between two replies.
    """

    def __init__(self, env: Any, task: Any, timeout: float) -> None:
        self.env, self.task, self.timeout = env, task, timeout
        self.traces: list[Any] = []
        self._events: queue.Queue[list[Any] | BaseException | None] = queue.Queue()
        self._reply: asyncio.Future[str] | None = None
        self._future = submit(self._run())

    def next_messages(self) -> list[Any] | None:
        """Wait until the agent must reply.

        Returns:
            The messages that are new to the agent; None if the run has ended.

        Raises:
            EnvError: The environment failed, or did not answer in time.
        """
        try:
            event = self._events.get(timeout=self.timeout)
        except queue.Empty:
            self.cancel()
            raise EnvError(f"no answer within {self.timeout:g} s") from None
        if isinstance(event, ConfigError):
            raise event
        if isinstance(event, BaseException):
            raise EnvError(error_line(event, 500)) from event
        return event

    def reply(self, text: str) -> None:
        """Send the agent's reply."""
        future = self._reply
        assert future is not None, "the agent was not asked"
        background().call_soon_threadsafe(_answer, future, text)

    def cancel(self) -> None:
        """End the run, if it has not ended."""
        self._future.cancel()

    async def ask(self, messages: list[Any]) -> str:
        """Pass messages on to the caller, and return the reply."""
        self._reply = asyncio.get_running_loop().create_future()
        self._events.put(messages)
        return await self._reply

    async def _run(self) -> None:
        try:
            config = self.env.config
            seats = {name: _Seat(self, name, agent) for name, agent in agent_config_fields(config).items()}
            agents = SimpleNamespace(**seats)
            await self.env.setup(agents)
            await self.env.run(self.task, agents)
            episode = Episode(env=EnvInfo(id=config.env_id), task=_trace_task(self.task))
            episode.traces.extend(self.traces)
            await self.env.finalize(self.task, episode)
        except Exception as error:
            self._events.put(error)
        else:
            self._events.put(None)


class _Seat:
    """Replaces verifiers' agent."""

    trainable = True

    def __init__(self, run: VerifiersRun, name: str, config: Any) -> None:
        self.owner, self.name, self.config = run, name, config

    @asynccontextmanager
    async def interaction(self, task: Any, **options: Any) -> AsyncIterator[_Interaction]:
        if task.toolsets(task.config):
            raise ConfigError(f"{type(task).__name__} has tools, which need verifiers' own harness")
        interaction = _Interaction(self, task)
        trace = interaction.trace
        await task.setup(trace, None)
        yield interaction
        trace.stop("user_closed")
        trace.ok = True
        await task.finalize(trace, None)
        await task.score(trace)
        self.owner.traces.append(trace)

    async def run(self, task: Any, **options: Any) -> Any:
        async with self.interaction(task) as interaction:
            await interaction.turn()
        return interaction.trace


class _Interaction:
    """Replaces verifiers' interaction: records the conversation and requests replies."""

    def __init__(self, seat: _Seat, task: Any) -> None:
        self.seat, self.task = seat, task
        self.started = self.over = False
        self.trace = Trace(
            task=_trace_task(task), state=state_cls(type(task))(),
            agent=AgentInfo(config=seat.config, name=seat.name),
        )  # fmt: skip
        self.stops = [stop for stop in task.hooks("stop") if hook_boundary(stop, allow_trace=True) is Trace]

    async def turn(self, message: Any = None) -> Any:
        if self.over:
            raise RuntimeError("the exchange is over")
        messages = [] if self.started else _opening(self.task.data)
        self.started = True
        if message is not None:
            messages += _messages(message)
        for item in messages:
            self._add(item)
        for stop in self.stops:
            verdict = stop(self.trace)
            if await verdict if inspect.isawaitable(verdict) else verdict:
                self.trace.stop(stop.__name__)
                self.over = True
                return Segment(messages=[], terminated=True)
        reply = AssistantMessage(content=await self.seat.owner.ask(messages))
        self._add(reply, sampled=True)
        return Segment(messages=[reply])

    def _add(self, message: Any, sampled: bool = False) -> None:
        nodes = self.trace.nodes
        parent = len(nodes) - 1 if nodes else None
        nodes.append(MessageNode(parent=parent, message=message, sampled=sampled))


def _answer(future: asyncio.Future[str], text: str) -> None:
    if not future.done():  # canceled in the meantime
        future.set_result(text)


def _trace_task(task: Any) -> Any:
    return TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)


def _opening(data: Any) -> list[Any]:
    system = [] if data.system_prompt is None else [SystemMessage(content=data.system_prompt)]
    return system + ([] if data.prompt is None else _messages(data.prompt))


def _messages(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [UserMessage(content=content)]
    return [UserMessage(content=item["content"]) if isinstance(item, dict) else item for item in content]
