"""A worker process of `ProcessHost`: answers the messages of its sessions, one after the other.

It reads records from standard input and writes records to standard output: a header (`HEADER`: number of the
seat, kind, size) and as many bytes. What environments print goes to standard error.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import BinaryIO

from gem_core._util.messages import error_line
from gem_core.bridges.openenv.hosts import close_quietly
from gem_core.bridges.openenv.sessions import MESSAGE_TYPES, Session
from gem_core.bridges.openenv.wire import ERROR_CODES
from gem_core.registration import make, register_wrapper, wrapper_entry_points
from gem_core.spec import EnvSpec

HEADER = struct.Struct("<QBI")
READY, ANSWER, CLOSE = 0, 1, 2
"""Kinds of records. A reply's kind is twice the position of its event in `EVENTS`, plus 1 while an episode
runs."""
EVENTS = (*MESSAGE_TYPES, *ERROR_CODES)


def main() -> None:
    """Serve the records of standard input until it ends."""
    source = os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    sink = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        spec = _start(source)
    except Exception as error:
        _write(sink, 0, READY, error_line(error).encode())
        return
    _write(sink, 0, READY, b"")
    sessions: dict[int, Session] = {}
    while (record := _read(source)) is not None:
        number, kind, payload = record
        if kind == CLOSE:
            session = sessions.pop(number, None)
            if session is not None:
                close_quietly(session)
            continue
        session = sessions.get(number)
        if session is None:
            session = sessions[number] = Session(lambda: make(spec), spec.id)
        reply = session.answer(payload)
        _write(sink, number, EVENTS.index(reply.event) << 1 | reply.running, reply.data)
    for session in sessions.values():
        close_quietly(session)


def _start(source: BinaryIO) -> EnvSpec:
    record = _read(source)
    if record is None:
        raise EOFError("the server ended before it sent the environment")
    settings = json.loads(record[2])
    sys.path[:] = settings["path"]
    known = wrapper_entry_points()
    for name, entry_point in settings["wrappers"].items():
        if name not in known:
            register_wrapper(name, entry_point)
    spec = EnvSpec.from_json(settings["spec"])
    make(spec).close()
    return spec


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
