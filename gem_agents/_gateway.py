"""`Gateway`: an OpenAI- and Anthropic-compatible server in front of a policy.

    session = await gateway.open(policy, context, limits, request_id)
    ... # an agent calls gateway.address(session) + "/v1/chat/completions"
    await gateway.close(session)

A process has one gateway for all of its episodes. It runs on an event loop in a thread of its own, because
engines may block the loop of the trainer for seconds, in which the SDKs of agents would give up. The policy
is called on the loop of the trainer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from gem_agents._pages import GatewayPages
from gem_agents._session import Session, SessionLimits
from gem_core._util.checks import check_int, check_number
from gem_core._util.forks import renew_after_fork
from gem_core.errors import ConfigError
from gem_core.rollout import Policy
from gem_envs._background import BackgroundLoop
from gem_envs.serving import Access, HttpServer
from gem_envs.serving._guard import ConnectionLimits

_MOST_PATH = 100
"""Number of bytes in the path of a Unix socket that every system takes."""


@dataclass(frozen=True, kw_only=True)
class GatewayLimits:
    """Limits of a gateway.

    Attributes:
        open_calls: Maximum number of responses that are sampled at the same time; further calls wait.
        heartbeat: Number of seconds between two signs of life in a stream whose response is being sampled.
        max_body: Maximum size in bytes of the body of a request.
        connections: Limits on connections. Agents on a busy machine need seconds from a connection to their
            first request, and minutes for a tool.
    """

    open_calls: int = 4096
    heartbeat: float = 10.0
    max_body: int = 64 << 20
    connections: ConnectionLimits = field(
        default_factory=lambda: ConnectionLimits(handshake=120.0, keep_alive=600.0)
    )

    def __post_init__(self) -> None:
        check_int("open_calls", self.open_calls, 1)
        check_int("max_body", self.max_body, 1)
        check_number("heartbeat", self.heartbeat, above=0)


class Gateway:
    """Serves the calls of agents.

    Args:
        limits: Limits of the gateway.
    """

    def __init__(self, limits: GatewayLimits | None = None) -> None:
        self._limits = limits or GatewayLimits()
        self._background = BackgroundLoop("gem-gateway")
        self.forget_parent()
        renew_after_fork(self)

    def forget_parent(self) -> None:
        """Forget the server in a forked child, because it belongs to the parent."""
        self._sessions: dict[str, Session] = {}
        self._server: HttpServer | None = None
        self._port = 0
        self._places: asyncio.Semaphore
        self._starting: asyncio.Lock | None = None

    def address(self, session: Session) -> str:
        """Return the address for an agent: the base address of Anthropic's SDK; OpenAI's has ``/v1``."""
        return f"http://127.0.0.1:{self._port}/e/{session.id}.{session.agent_key}"

    def grader_address(self, session: Session) -> str:
        """Return the address for a grader, which the agent must not see."""
        return f"http://127.0.0.1:{self._port}/grader/{session.id}.{session.grader_key}"

    async def open(self, policy: Policy, context: Any, limits: SessionLimits, request_id: str) -> Session:
        """Begin an episode, on the event loop on which the policy is called.

        Args:
            policy: The policy.
            context: An `AppendContext`.
            limits: Limits of the episode.
            request_id: Id of the episode.

        Raises:
            ConfigError: The context cannot encode the conversations of agents.
        """
        conversations = getattr(context, "conversations", None)
        if conversations is None:
            raise ConfigError(
                f"an agent keeps its own history, which {type(context).__name__} cannot encode; use an "
                "AppendContext (context='append')"
            )
        home = asyncio.get_running_loop()

        async def open() -> Session:
            await self._start()
            session = Session(policy, home, conversations, limits, request_id, self._places)
            self._sessions[session.id] = session
            return session

        return await self._background.on(open())

    @property
    def port(self) -> int:
        """Port of the addresses of its episodes; 0 before the first one."""
        return self._port

    @contextlib.asynccontextmanager
    async def serving(self, bound: socket.socket) -> AsyncIterator[None]:
        """Serve the connections of a further socket while the block runs."""

        async def start() -> asyncio.Server:
            assert self._server is not None, "an episode is open"
            return await self._server.listen_on(bound)

        async def stop(listener: asyncio.Server) -> None:
            listener.close()

        listener = await self._background.on(start())
        try:
            yield
        finally:
            await self._background.on(stop(listener))

    @contextlib.asynccontextmanager
    async def unix_socket(self) -> AsyncIterator[str]:
        """Serve the connections of a Unix socket while the block runs, and yield its path.

        Its folder is closed to other users. A container into which the socket is mounted may connect.
        """
        short = len(os.fsencode(tempfile.gettempdir())) < _MOST_PATH - 30
        with (
            tempfile.TemporaryDirectory(prefix="gem-", dir=None if short else "/tmp") as folder,
            socket.socket(socket.AF_UNIX) as bound,
        ):
            path = f"{folder}/gateway"
            bound.bind(path)
            os.chmod(path, 0o666)
            async with self.serving(bound):
                yield path

    async def close(self, session: Session) -> None:
        """End an episode: open calls are canceled, and its keys are no longer valid."""

        async def close() -> None:
            self._sessions.pop(session.id, None)
            await session.close()

        await self._background.on(close())

    async def end(self, session: Session, reason: str) -> None:
        """Answer all calls of an episode from now on with an error that names the reason."""

        async def end() -> None:
            session.end(reason)

        await self._background.on(end())

    async def stop(self) -> None:
        """Stop the server, and end all episodes."""

        async def stop() -> None:
            for session in [*self._sessions.values()]:
                await session.close()
            self._sessions.clear()
            server, self._server, self._starting = self._server, None, None
            if server is not None:
                await server.close()

        await self._background.on(stop())

    async def _start(self) -> None:
        """Start the server, on its loop."""
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._server is None:
                self._places = asyncio.Semaphore(self._limits.open_calls)
                pages = GatewayPages(self._sessions, self._limits.max_body, self._limits.heartbeat)
                server = HttpServer(pages.answer, self._limits.connections)
                self._port = await server.listen(Access.for_address("127.0.0.1"), "127.0.0.1")
                self._server = server


GATEWAY = Gateway()
"""The gateway of this process."""
