"""Bytes of a client that need not keep the rules: raw HTTP requests and WebSocket frames."""

import asyncio
import base64
import os
import struct

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(payload=b"", opcode=TEXT, *, first=None, mask=True, size=None):
    """Return a frame; `first` replaces its first byte and `size` the length that it declares."""
    size = len(payload) if size is None else size
    head = bytes([0x80 | opcode if first is None else first])
    bit = 0x80 if mask else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += struct.pack("!BH", bit | 126, size)
    else:
        head += struct.pack("!BQ", bit | 127, size)
    if not mask:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


def upgrade(port, path="/ws", **headers):
    """Return the request that opens a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    fields = {
        "Host": f"127.0.0.1:{port}", "Upgrade": "websocket", "Connection": "Upgrade",
        "Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13", **headers,
    }  # fmt: skip
    return request(f"GET {path} HTTP/1.1", **fields)


def request(line, body=b"", **headers):
    """Return a request; an underscore in the name of a header stands for a hyphen."""
    lines = [line, *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


async def opened(port, data):
    """Send bytes on a new connection, and return its reader and writer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


async def asked(port, data, seconds=20.0):
    """Return what the server answers to some bytes until it ends the connection or is silent."""
    reader, writer = await opened(port, data)
    answer = b""
    try:
        while part := await asyncio.wait_for(reader.read(1 << 16), seconds if not answer else 0.5):
            answer += part
    except asyncio.TimeoutError:
        pass
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


def status(answer):
    """Return the status of an answer; 0 if there is none."""
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") else 0


async def read_frame(reader):
    """Return opcode and payload of the next frame of the server."""
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size >= 126:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
    return first & 15, await reader.readexactly(size)


async def session(port, path="/ws", **headers):
    """Open a WebSocket and return its reader and writer."""
    reader, writer = await opened(port, upgrade(port, path, **headers))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    assert status(head) == 101, head
    return reader, writer


def memory(pid="self"):
    """Return the resident memory of a process in MB."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
