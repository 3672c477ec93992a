"""What is canceled: one episode of a pool, with environments of every kind and with what they hold."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_chat import MessagesContext
from gem_chat._concurrency import play_tasks
from gem_chat.tools import Tool, ToolResult, make_tools
from gem_core import register
from gem_core.rollout import ChatReply, EnvPool, EpisodeLimits
from gem_envs.tools import Tools
from tests.cancels.witness import Awaiting, Blocking, Witness
from tests.envs.multiagent.test_multi_agent_env import Counting

SLOW = 0.002
"""Seconds of a call in a thread."""


class Speaker:
    """A policy that knows which requests are open."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open: set[str] = set()

    async def reply(self, messages: Any, *, max_tokens: int, request_id: str, **offered: Any) -> ChatReply:
        self.open.add(request_id)
        await asyncio.sleep(0)
        return ChatReply(self.text)

    def forget_request(self, request_id: str) -> None:
        self.open.discard(request_id)


class Clock(Tool):
    """Answers from a thread."""

    name, description = "clock", "Waits."

    async def call(self, arguments: Mapping[str, Any], state: Any) -> ToolResult:
        from gem_core._util.threads import TOOL_THREADS, call_in

        await call_in(TOOL_THREADS, lambda: time.sleep(SLOW))
        return ToolResult("now")


class Echo(Tool):
    """Answers from a coroutine."""

    name, description = "echo", "Repeats."

    async def call(self, arguments: Mapping[str, Any], state: Any) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult("echo")


class Game(Counting, Witness):
    """Several agents; a witness of its own calls."""

    def __init__(self) -> None:
        Counting.__init__(self, num_agents=2, limit=3)
        steps, agents = self.steps_left, self.possible_agents
        Witness.__init__(self)
        self.steps_left, self.possible_agents = steps, agents

    def reset(self, seed: Any = None, *, options: Any = None) -> Any:
        with self.running():
            return Counting.reset(self, seed)

    def step(self, actions: Any) -> Any:
        with self.running():
            if self.blocking:
                time.sleep(SLOW)
            return Counting.step(self, actions)

    def close(self) -> None:
        Witness.close(self)


class BlockingGame(Game):
    blocking = True


def _call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@dataclass
class Scene:
    """One kind of episode.

    Attributes:
        env: Builds the environment.
        text: What the policy says in every turn.
        limits: Limits of the episode.
        turns: Most turns of the event loop of an episode, for cancels after n turns.
        together: Number of episodes that run at the same time and are canceled together.
        outside: Returns the numbers of things that are held elsewhere, such as sessions on a server.
        held_while_idle: Names of those that an idle environment of the pool holds.
    """

    env: Callable[..., Any]
    text: str = "good"
    limits: EpisodeLimits = field(default_factory=lambda: EpisodeLimits(max_turns=3))
    turns: int = 40
    together: int = 1
    outside: Callable[[], Mapping[str, int]] = Counter
    held_while_idle: Sequence[str] = ("sessions on the server", "places of sessions")

    async def play(self, pool: EnvPool, policy: Speaker) -> list[Any]:
        """Play the episodes."""
        _build[0] = self.env

        async def one(number: int, _: object) -> Any:
            task: Any = {**TASK, "seed": number}
            return await pool.play_all(task, policy, MessagesContext(), self.limits, log_errors=False)

        if self.together == 1:
            return [*await one(0, None)]
        played = await play_tasks(range(self.together), one, at_once=self.together)
        return [episode for episodes in played for episode in episodes]


TASK = {"env_id": "cancels:Scene-v0", "env_kwargs": {}, "index": 0, "item": None}
_build: list[Callable[..., Any]] = [Witness]
register("cancels:Scene-v0", lambda: _build[0]())

PATIENT = EpisodeLimits(max_turns=3, step_timeout=30.0)
"""With a time limit, which is never reached."""

SCENES: dict[str, Scene] = {
    "inline": Scene(lambda: Witness(turns=3)),
    "blocking": Scene(lambda: Blocking(turns=2, seconds=SLOW)),
    "blocking, step_timeout": Scene(lambda: Blocking(turns=2, seconds=SLOW), limits=PATIENT),
    "async": Scene(lambda: Awaiting(turns=3)),
    "async, step_timeout": Scene(lambda: Awaiting(turns=3), limits=PATIENT),
    "tool, coroutine": Scene(
        lambda: Tools(Witness(), tools=Echo(), format="hermes", timeout=30, together=True), _call("echo")
    ),
    "tool, thread": Scene(lambda: Tools(Witness(), tools=Clock(), format="hermes"), _call("clock")),
    "tools around blocking": Scene(
        lambda: Tools(Blocking(turns=2, seconds=SLOW), tools=Clock(), format="hermes"), limits=PATIENT
    ),
    "several agents": Scene(Game, turns=60),
    "several agents, blocking": Scene(BlockingGame, limits=PATIENT),
}
"""Scenes that need only numpy."""


@contextlib.contextmanager
def openenv() -> Iterator[Scene]:
    """A scene with a server of OpenEnv in a thread of this process, whose environments are witnesses."""
    from gem_bridges.openenv._env import OpenEnvEnv
    from gem_bridges.openenv._server import serve_env
    from tests.bridges.openenv.serving import serving

    register("cancels:Served-v0", lambda: Awaiting(turns=3))
    with serving(serve_env("cancels:Served-v0"), max_sessions=64) as running:

        def outside() -> Mapping[str, int]:
            return {"sessions on the server": len(running.server.state.sessions)}

        yield Scene(
            lambda: OpenEnvEnv(running.url, retry_for=5.0),
            turns=0,
            together=16,
            outside=outside,
        )


@contextlib.contextmanager
def mcp() -> Iterator[Scene]:
    """A scene with a server of MCP in another process, and a session for each episode."""
    from gem_envs.tools.mcp import _pool as pools
    from tests.tools.mcp.servers import example_over_http, free_port

    port = free_port()
    with example_over_http(port):
        source = f"mcp(url='http://127.0.0.1:{port}/mcp', sessions='episode', max_sessions=4)"

        def build() -> Any:
            tools = make_tools(source)  # raises if the constructor is given up
            return Tools(Witness(turns=2), tools=tools, format="hermes")

        def outside() -> Mapping[str, int]:
            (pool,) = pools._pools.values()
            return {
                "sessions on the server": sum(not session.gone for session in pool._sessions)
                - (pool._shared is not None),
                "places of sessions": 4 - pool._places._value,
                "places of calls": pool.config.concurrency - pool._calls._value,
            }

        yield Scene(
            build,
            _call("calculate", '{"expression": "2+3"}'),
            limits=EpisodeLimits(max_turns=2),
            turns=0,
            outside=outside,
        )
        pools.close_pools()


SERVED: dict[str, Callable[[], contextlib.AbstractContextManager[Scene]]] = {"OpenEnv": openenv, "MCP": mcp}
"""Scenes that need a server and an extra."""
EXTRAS: Sequence[tuple[str, str]] = (("OpenEnv", "aiohttp"), ("MCP", "mcp"))
