"""The main functions of the workers of `WorkerHost`, and the form of their messages.

A message is one record: a head (index of the seat, kind, size) and as many bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any

from gem_bridges.openenv._hosts import InlineHost, end_task, local_host, unexpected
from gem_bridges.openenv._sessions import MESSAGE_TYPES, OpenEnvSession, SessionReply
from gem_bridges.openenv._wire import ERROR_CODES
from gem_core import Env
from gem_core._util.messages import error_line
from gem_core._workers import EnvRecipe

ANSWER, CLOSE = 1, 2
"""Kinds of messages to a worker."""
_HEAD = struct.Struct("<QBI")
_EVENTS = (*MESSAGE_TYPES, *ERROR_CODES)


def pack(number: int, kind: int, content: bytes) -> bytes:
    """Return the record of a message."""
    return _HEAD.pack(number, kind, len(content)) + content


async def read_record(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Return the index of the seat, the kind, and the content of the next record."""
    number, kind, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return number, kind, await reader.readexactly(size)


async def socket_streams(connection: Connection) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return streams on a copy of the socket of a connection."""
    return await asyncio.open_connection(sock=socket.socket(fileno=os.dup(connection.fileno())))


def pack_reply(number: int, reply: SessionReply) -> bytes:
    """Return the record of a reply.

    Its kind is twice the position of its event in `_EVENTS`, plus 1 while an episode runs.
    """
    return pack(number, _EVENTS.index(reply.event) << 1 | reply.running, reply.data)


def unpack_reply(kind: int, content: bytes) -> SessionReply:
    """Return the reply of a record."""
    return SessionReply(content, _EVENTS[kind >> 1], bool(kind & 1))


def serve_process(connection: Connection, recipe: EnvRecipe) -> None:
    """Answer the messages of the sessions, one after another, until the server closes the connection."""
    os.dup2(2, 1)  # what environments print goes to standard error
    if _build(connection, recipe) is None:
        return
    source, sink = (os.fdopen(os.dup(connection.fileno()), mode, buffering=1 << 16) for mode in ("rb", "wb"))
    sessions: dict[int, OpenEnvSession] = {}
    with contextlib.suppress(OSError):  # the server has closed the connection
        while len(head := source.read(_HEAD.size)) == _HEAD.size:
            number, kind, size = _HEAD.unpack(head)
            payload = source.read(size)
            if kind == CLOSE:
                if number in sessions:
                    sessions.pop(number).close()
                continue
            session = sessions.get(number)
            if session is None:
                session = sessions[number] = OpenEnvSession(recipe.make, recipe.spec.id)
            sink.write(pack_reply(number, session.answer(payload)))
            sink.flush()
    for session in sessions.values():
        session.close()


def serve_actor(connection: Connection, recipe: EnvRecipe, timeout: float | None) -> None:
    """Run the sessions as a server would in its own process, until the server closes the connection."""
    env = _build(connection, recipe)
    if env is not None:
        asyncio.run(LocalSessions(connection, recipe, env, timeout).run())


def _build(connection: Connection, recipe: EnvRecipe) -> Env | None:
    """Build an environment, which is closed, and send an error message, or "" on success."""
    try:
        env = recipe.make()
        env.close()
    except Exception as error:
        connection.send(error_line(error))
        return None
    connection.send("")
    return env


class LocalSessions:
    """Sessions of an actor.

    Args:
        connection: Connection to the server.
        recipe: Recipe for the environment.
        env: One of the environments, which may be closed.
        timeout: See `WorkerHost`.
    """

    def __init__(self, connection: Connection, recipe: EnvRecipe, env: Env, timeout: float | None) -> None:
        self._connection = connection
        self._host = local_host(recipe.make, recipe.spec.id, env, timeout)
        self._seats: dict[int, Any] = {}
        self._tasks: dict[int, asyncio.Task[SessionReply]] = {}
        self._writer: asyncio.StreamWriter

    async def run(self) -> None:
        """Answer the messages of the server until it closes the connection."""
        reader, self._writer = await socket_streams(self._connection)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.take(*await read_record(reader))
        for task in list(self._tasks.values()):
            await end_task(task)
        for seat in self._seats.values():
            self._host.close(seat)
        await self._host.stop()

    def take(self, number: int, kind: int, payload: bytes) -> None:
        """Answer a message, or begin to."""
        if kind == CLOSE:
            if number in self._tasks:
                self._tasks[number].cancel()
            if number in self._seats:
                self._host.close(self._seats.pop(number))
            return
        seat = self._seats.get(number)
        if seat is None:
            seat = self._seats[number] = self._host.open()
        if isinstance(self._host, InlineHost):
            self._writer.write(pack_reply(number, seat.answer(payload)))
        else:
            task = self._tasks[number] = asyncio.ensure_future(self._host.answer(seat, payload))
            task.add_done_callback(functools.partial(self._answered, number))

    def _answered(self, number: int, task: asyncio.Task[SessionReply]) -> None:
        """Send the reply of a task, also of one that was canceled before it began."""
        del self._tasks[number]
        if task.cancelled():  # the session has ended
            reply = SessionReply(b"", "close", False)
        elif (error := task.exception()) is not None:
            reply = unexpected(error)
        else:
            reply = task.result()
        self._writer.write(pack_reply(number, reply))
