"""A line between an agent and a gateway that breaks once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Wire: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Fault: TypeAlias = Callable[[Wire, Wire], Coroutine[Any, Any, None]]
"""Handles one connection of an agent and one to the gateway, and closes neither."""


def status(number: int) -> Fault:
    """Answer with a status instead of asking the gateway."""

    async def answer(agent: Wire, gateway: Wire) -> None:
        await _request(agent[0])
        body = b'{"error": {"message": "try again", "type": "server_error"}}'
        head = f"HTTP/1.1 {number} Error\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        agent[1].write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await agent[1].drain()

    return answer


async def hang_up(agent: Wire, gateway: Wire) -> None:
    """Close the connection before the request is passed on."""
    await _request(agent[0])


async def lose(agent: Wire, gateway: Wire) -> None:
    """Pass the request on, and close the connection while the model samples."""
    gateway[1].write(await _request(agent[0]))
    await gateway[1].drain()
    await asyncio.sleep(0.1)


async def cut(agent: Wire, gateway: Wire) -> None:
    """Close the connection after the first part of a stream, while the model samples."""
    gateway[1].write(await _request(agent[0]))
    await gateway[1].drain()
    agent[1].write(await gateway[0].read(100_000))
    await agent[1].drain()
    await asyncio.sleep(0.1)


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
    return head + await reader.readexactly(int(fields.get(b"content-length", b"0")))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@contextlib.asynccontextmanager
async def breaking(base: str, fault: Fault, at: int) -> AsyncIterator[str]:
    """Serve the address of a gateway through a line that breaks at one connection.

    Args:
        base: The address.
        fault: What happens to that connection.
        at: Its index.
    """
    to, count, tasks = urlsplit(base), 0, set[asyncio.Task[Any]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        index, count = count, count + 1
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        upstream = await asyncio.open_connection(to.hostname, to.port)
        try:
            if index == at:
                await fault((reader, writer), upstream)
            else:
                ways = [
                    asyncio.ensure_future(_pass(reader, upstream[1])),
                    asyncio.ensure_future(_pass(upstream[0], writer)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            upstream[1].close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}{to.path}"
        assert count > at, "the fault did not happen"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
