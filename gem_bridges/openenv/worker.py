"""A worker process of `ProcessHost`: answers the messages of its sessions, one after another.

It reads records from standard input and writes records to standard output: a header (`HEADER`: number of the
seat, kind, size) and as many bytes. What environments print goes to standard error.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from typing import BinaryIO

from gem_bridges.openenv.sessions import MESSAGE_TYPES, Session, SessionReply
from gem_bridges.openenv.wire import ERROR_CODES
from gem_bridges.openenv.workers import CLOSE
from gem_core._util.messages import error_line
from gem_core.registration import make, register_wrapper, wrapper_entry_points
from gem_core.spec import EnvSpec

HEADER = struct.Struct("<QBI")
READY = 0
"""Kind of the first record in both directions. Later replies have twice the position of their event in
`EVENTS` as their kind, plus 1 while an episode runs."""
EVENTS = (*MESSAGE_TYPES, *ERROR_CODES)


def main() -> None:
    """Serve the records of standard input until it ends."""
    source = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    sink = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        spec = _first_spec(source)
        make(spec).close()
    except Exception as error:
        _write(sink, 0, READY, error_line(error).encode())
        return
    _write(sink, 0, READY, b"")
    sessions: dict[int, Session] = {}
    while (record := _read(source)) is not None:
        number, kind, payload = record
        if kind == CLOSE:
            if number in sessions:
                sessions.pop(number).close()
            continue
        session = sessions.get(number)
        if session is None:
            session = sessions[number] = Session(lambda: make(spec), spec.id)
        sink.write(pack_reply(number, session.answer(payload)))
        sink.flush()
    for session in sessions.values():
        session.close()


def pack_reply(number: int, reply: SessionReply) -> bytes:
    """Return the record of a reply."""
    return HEADER.pack(number, EVENTS.index(reply.event) << 1 | reply.running, len(reply.data)) + reply.data


def unpack_reply(kind: int, data: bytes) -> SessionReply:
    """Return the reply of a record."""
    return SessionReply(data, EVENTS[kind >> 1], bool(kind & 1))


async def read_record(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Return the number of the session, the kind, and the payload of the next record."""
    number, kind, size = HEADER.unpack(await reader.readexactly(HEADER.size))
    return number, kind, await reader.readexactly(size)


def worker_settings(spec: EnvSpec) -> bytes:
    """Return the data with which a worker builds an environment; `read_settings` reads it there.

    Raises:
        ConfigError: The spec has no JSON form.
    """
    content = {"spec": spec.to_json(), "wrappers": wrapper_entry_points(), "path": sys.path}
    return json.dumps(content).encode()


def read_settings(content: bytes) -> EnvSpec:
    """Prepare this process for an environment, and return its spec."""
    values = json.loads(content)
    sys.path[:] = values["path"]
    known = wrapper_entry_points()
    for name, entry_point in values["wrappers"].items():
        if name not in known:
            register_wrapper(name, entry_point)
    return EnvSpec.from_json(values["spec"])


def _first_spec(source: BinaryIO) -> EnvSpec:
    record = _read(source)
    if record is None:
        raise EOFError("the server ended before it sent the environment")
    return read_settings(record[2])


def _read(source: BinaryIO) -> tuple[int, int, bytes] | None:
    head = source.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    number, kind, size = HEADER.unpack(head)
    payload = source.read(size)
    return (number, kind, payload) if len(payload) == size else None


def _write(sink: BinaryIO, number: int, kind: int, payload: bytes) -> None:
    sink.write(HEADER.pack(number, kind, len(payload)) + payload)
    sink.flush()


if __name__ == "__main__":
    main()
