"""`Connection`: one session of the server over WebSocket, and the state that all of them share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from time import monotonic
from typing import Any

from gem_bridges.openenv._hosts import unexpected
from gem_bridges.openenv._metrics import Metrics
from gem_bridges.openenv._served import ServedEnv, ServerLimits
from gem_bridges.openenv._sessions import SessionReply
from gem_core._util.waiting import Overdue, within
from gem_envs.serving._http import WSCloseCode, WSMsgType, web

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 1.0
"""Number of seconds that a client has to answer a close frame."""
_TURN = 32
"""Number of frames of one client after which other clients get their turn."""


class ServerState:
    """What all sessions share.

    Attributes:
        limits: Limits of the server.
        sessions: Open sessions.
        draining: Whether the server is shutting down: no new session, no new episode.
        metrics: Counters.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.sessions: set[Connection] = set()
        self.draining = False
        self.metrics = Metrics()


class Connection:
    """A session of a client.

    Messages are answered in order, one at a time. aiohttp stops reading from a client that does not read its
    answers, or whose unanswered messages take too many bytes, until it does.

    Attributes:
        active_at: Time of the last message, in seconds of `time.monotonic`. Pings do not count, because
            libraries send them for programs that have stopped.
        running: Whether an episode is running.
        busy: Whether a message is being answered.
    """

    __slots__ = (
        "_ended", "_env", "_seat", "_socket", "_state", "_transport", "active_at", "busy", "running",
    )  # fmt: skip

    def __init__(
        self, state: ServerState, env: ServedEnv, socket: web.WebSocketResponse[Any], transport: Any
    ) -> None:
        self._state, self._env, self._socket, self._transport = state, env, socket, transport
        self._seat = env.host.open()
        self._ended = False
        self.active_at = monotonic()
        self.running = self.busy = False

    async def play(self) -> None:
        """Answer messages until the session ends."""
        state = self._state
        state.sessions.add(self)
        state.metrics.opened += 1
        try:
            await self._answer_all()
        except ConnectionError:
            pass  # the client is gone
        finally:
            state.sessions.discard(self)
            self.running = False
            self._env.host.close(self._seat)

    async def _answer_all(self) -> None:
        socket, inline, frames = self._socket, self._env.inline, 0
        while True:
            message = await socket.receive()
            if message.type is WSMsgType.TEXT or message.type is WSMsgType.BINARY:
                began = self.active_at = monotonic()
                reply = self._seat.answer(message.data) if inline else await self._ask(message.data)
                self._count(reply, began)
                if reply.event == "close":
                    await self.end(WSCloseCode.OK, "")
                    return
                await socket.send_frame(reply.data, WSMsgType.TEXT)
                if self._state.draining and not reply.running:
                    await self.end(WSCloseCode.GOING_AWAY, "the server shuts down")
                    return
            elif message.type is WSMsgType.PING:
                await socket.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                return
            frames += 1
            if frames % _TURN == 0:
                await asyncio.sleep(0)

    async def _ask(self, payload: bytes) -> SessionReply:
        self.busy = True
        try:
            return await self._env.host.answer(self._seat, payload)
        except Exception as error:
            logger.exception("answering a message failed")
            return unexpected(error)
        finally:
            self.busy = False

    def _count(self, reply: SessionReply, began: float) -> None:
        metrics = self._state.metrics
        metrics.count(reply.event, monotonic() - began)
        if self.running and not reply.running and reply.event == "step":
            metrics.episodes += 1
        self.running = reply.running

    async def end(self, code: WSCloseCode, reason: str) -> None:
        """End the session with a close frame. May be called more than once."""
        if not self._ended:
            self._ended = True
            await end_socket(self._socket, self._transport, code, reason)


async def end_socket(
    socket: web.WebSocketResponse[Any], transport: Any, code: WSCloseCode, reason: str
) -> None:
    """Send a close frame, and end the connection once the client has answered it or had time to.

    Args:
        socket: The WebSocket.
        transport: Its connection.
        code: Code of the close frame.
        reason: Text of the close frame.
    """
    text = reason.encode()[:120].decode(errors="ignore").encode()  # a close frame holds 123 bytes
    try:
        with contextlib.suppress(ConnectionError, RuntimeError, Overdue):
            await within(2 * CLOSE_SECONDS, socket.close(code=code, message=text, drain=False))
    finally:
        transport.abort()
