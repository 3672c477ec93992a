"""WebSocket messages (RFC 6455) without I/O: bytes in, messages out. No extensions, no dependency."""

from __future__ import annotations

import base64
import hashlib
import os
import struct

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

NORMAL, GOING_AWAY, PROTOCOL_ERROR, BAD_TEXT, TOO_BIG, TRY_LATER = 1000, 1001, 1002, 1007, 1009, 1013
"""Codes of close frames."""


class FrameError(Exception):
    """Raised when the other side breaks the protocol; `code` is the code of the close frame to send."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.code = code


def accept_key(key: str) -> str:
    """Return the value of ``Sec-WebSocket-Accept`` for a value of ``Sec-WebSocket-Key``."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def new_key() -> str:
    """Return a random value of ``Sec-WebSocket-Key``."""
    return base64.b64encode(os.urandom(16)).decode()


def encode_frame(payload: bytes, opcode: int = TEXT, *, mask: bool = False) -> bytes:
    """Return one unfragmented frame. Clients must `mask` theirs, servers must not."""
    size = len(payload)
    bit = 0x80 if mask else 0
    if size < 126:
        head = bytes((0x80 | opcode, bit | size))
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, bit | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, bit | 127, size)
    if not mask:
        return head + payload
    key = os.urandom(4)
    return head + key + _xor(payload, key)


def encode_close(code: int, reason: str = "") -> bytes:
    """Return the payload of a close frame, which holds at most 125 bytes."""
    return code.to_bytes(2, "big") + reason.encode()[:120].decode(errors="ignore").encode()


def _xor(data: bytes | bytearray, mask: bytes | bytearray) -> bytes:
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


_SHORT = [bytes((0x80 | TEXT, 0x80 | size)) for size in range(126)]
"""Heads of whole masked text messages by their size."""


class FrameReader:
    """Turns the bytes of one connection into messages.

    Args:
        masked: Whether the frames must be masked, as a client's frames are.
        max_size: Maximum size of a message in bytes.
    """

    __slots__ = ("_buffer", "_masked", "_max_size", "_needed", "_opcode", "_parts", "_size")

    def __init__(self, *, masked: bool, max_size: int) -> None:
        self._masked, self._max_size = masked, max_size
        self._buffer: bytes | bytearray = b""
        self._needed = 2  # bytes without which nothing more can be read
        self._opcode = 0  # of a message whose last frame has not arrived
        self._parts: tuple[bytes, ...] = ()
        self._size = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the messages and control frames that `data` completes, as pairs of opcode and payload.

        Raises:
            FrameError: The bytes break the protocol, or a message exceeds the limit.
        """
        size = len(data) - 6
        between = self._masked and not self._buffer and not self._opcode
        if between and 0 <= size < 126 and data[:2] == _SHORT[size]:
            return [(TEXT, _xor(data[6:], data[2:6]))]  # one short message, as nearly always
        buffer: bytes | bytearray = data
        if self._buffer:
            if not isinstance(self._buffer, bytearray):
                self._buffer = bytearray(self._buffer)
            self._buffer += data
            buffer = self._buffer
            if len(buffer) < self._needed:
                return []
        messages = []
        position = 0
        while (frame := self._frame(buffer, position)) is not None:
            final, opcode, payload, position = frame
            if opcode >= CLOSE:
                if not final or len(payload) > 125 or opcode > PONG:
                    raise FrameError("a control frame must be unfragmented and have at most 125 bytes")
                messages.append((opcode, payload))
                continue
            if (opcode == CONTINUATION) != bool(self._opcode) or opcode > BINARY:
                raise FrameError("a frame is out of order")
            if final and not self._opcode:
                messages.append((opcode, payload))
                continue
            self._opcode = self._opcode or opcode
            self._size += len(payload)
            self._parts += (payload,)
            if self._size > self._max_size or len(self._parts) > 1000:
                raise FrameError(f"the message has more than {self._max_size} bytes", TOO_BIG)
            if final:
                messages.append((self._opcode, b"".join(self._parts)))
                self._opcode, self._parts, self._size = 0, (), 0
        if position == len(buffer):
            self._buffer, self._needed = b"", 2
        else:
            self._buffer = buffer[position:]
            self._needed -= position
        return messages

    def _frame(self, buffer: bytes | bytearray, start: int) -> tuple[bool, int, bytes, int] | None:
        """Return (final, opcode, payload, position after it) of the frame at `start`; None if incomplete."""
        there = len(buffer)
        self._needed = start + 2
        if there < self._needed:
            return None
        first, second = buffer[start], buffer[start + 1]
        if first & 0x70:
            raise FrameError("extensions are not supported")
        if bool(second & 0x80) != self._masked:
            raise FrameError("frames of clients must be masked, frames of servers must not")
        size, position = second & 0x7F, start + 2
        if size >= 126:
            width = 2 if size == 126 else 8
            self._needed = position + width
            if there < self._needed:
                return None
            size = int.from_bytes(buffer[position : position + width], "big")
            position += width
        if size > self._max_size:
            raise FrameError(f"the message has more than {self._max_size} bytes", TOO_BIG)
        end = position + size + (4 if self._masked else 0)
        self._needed = end
        if there < end:
            return None
        if self._masked:
            payload = _xor(buffer[position + 4 : end], buffer[position : position + 4])
        else:
            payload = bytes(buffer[position:end])
        return bool(first & 0x80), first & 15, payload, end
