"""Clients of the OpenEnv server that break the rules of WebSocket, or want its memory or its time."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time

import pytest

from tests.bridges.openenv import odd
from tests.bridges.openenv.serving import GUESS, serving
from tests.serving import raw

RESET = b'{"type": "reset", "data": {"seed": 1}}'
BROKEN, BAD_TEXT, TOO_BIG = 1002, 1007, 1009
MAX = 1 << 20


@pytest.fixture(scope="module")
def port():
    """The port of a server in this process."""
    with serving(GUESS) as running:
        yield running.server.port


@contextlib.contextmanager
def started(*options, id=GUESS):
    """Start the command; yield its port and a function for its memory in MB."""
    code = "from tests.bridges.openenv import odd; odd.register(); from gem_lab import main; main()"
    command = [sys.executable, "-c", code, "serve", "openenv", id, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            port = int(process.stdout.readline().split()[-1].rpartition(":")[2])
            yield port, lambda: raw.memory(process.pid)
        finally:
            process.kill()


async def said(port, data, most=1):
    """Return the frames that answer some bytes, at most so many."""
    reader, writer = await raw.session(port)
    frames = []
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError):
        while len(frames) < most:
            frames.append(await asyncio.wait_for(raw.read_frame(reader), 30))
    writer.close()
    return frames


async def plays(port):
    """Check that a session still gets its answer soon."""
    began = time.monotonic()
    ((opcode, payload),) = await said(port, raw.frame(RESET))
    assert opcode == raw.TEXT
    assert json.loads(payload)["data"]["done"] is False
    return time.monotonic() - began


RULES = {
    "the first reserved bit, as in compressed frames": (raw.frame(RESET, first=0xC1), BROKEN),
    "the second reserved bit": (raw.frame(RESET, first=0xA1), BROKEN),
    "the third reserved bit": (raw.frame(RESET, first=0x91), BROKEN),
    "opcode 3": (raw.frame(RESET, 3), BROKEN),
    "opcode 11": (raw.frame(RESET, 11), BROKEN),
    "a continuation of nothing": (raw.frame(RESET, 0), BROKEN),
    "two beginnings": (raw.frame(b"x", first=1) + raw.frame(RESET), BROKEN),
    "a cut ping": (raw.frame(b"x", first=raw.PING), BROKEN),
    "a long ping": (raw.frame(b"x" * 126, raw.PING), BROKEN),
    "a long close": (raw.frame(b"x" * 200, raw.CLOSE), BROKEN),
    "a short close": (raw.frame(b"x", raw.CLOSE), BROKEN),
    "a close with an unknown code": (raw.frame(b"\x00\x01", raw.CLOSE), BROKEN),
    "a close with bad text": (raw.frame(b"\x03\xe8\xff", raw.CLOSE), BAD_TEXT),
    "a length of 2^63": (raw.frame(b"x", size=1 << 63), TOO_BIG),
    "a length of 2^63 - 1": (raw.frame(b"x", size=(1 << 63) - 1), TOO_BIG),
    "a length of 2^32": (raw.frame(b"x", size=1 << 32), TOO_BIG),
    "a byte too many": (raw.frame(b"", size=MAX + 1), TOO_BIG),
    "two halves that are too long": (
        raw.frame(b"x", first=1) + raw.frame(b"", first=0x80, size=MAX),
        TOO_BIG,
    ),
    "many fragments": (raw.frame(b"{", first=1) + raw.frame(b" " * 500, first=0) * 2200, TOO_BIG),
}


@pytest.mark.parametrize("name", RULES)
def test_broken_frames_end_the_session_with_their_code(port, name):
    data, code = RULES[name]
    frames = asyncio.run(said(port, data))
    assert [(raw.CLOSE, code)] == [(opcode, int.from_bytes(text[:2], "big")) for opcode, text in frames]
    asyncio.run(plays(port))


def test_fragments_around_a_ping_and_binary_messages_are_read(port):
    data = raw.frame(RESET[:9], first=1) + raw.frame(b"?", raw.PING) + raw.frame(RESET[9:], first=0x80)
    ping, answer = asyncio.run(said(port, data, 2))
    assert ping == (raw.PONG, b"?")
    assert json.loads(answer[1])["type"] == "observation"
    ((_, payload),) = asyncio.run(said(port, raw.frame(RESET, raw.BINARY)))
    assert json.loads(payload)["type"] == "observation"
    ((_, payload),) = asyncio.run(said(port, raw.frame(b"\xff\xfe")))
    assert json.loads(payload)["data"]["code"] == "INVALID_JSON"


def test_compression_is_not_offered(port):
    async def main():
        headers = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
        reader, writer = await raw.opened(port, raw.upgrade(port, **headers))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert raw.status(head) == 101
        assert b"extensions" not in head.lower()
        writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-WebSocket-Key": ""}, {"Sec-WebSocket-Key": "x"}, {"Sec-WebSocket-Key": "x" * 24},
        {"Sec-WebSocket-Version": "12"}, {"Sec-WebSocket-Version": ""}, {"Connection": "close"},
        {"Upgrade": "websocket, h2c"},
    ],
    ids=str,
)  # fmt: skip
def test_bad_handshakes_are_answered_with_400(port, headers):
    assert raw.status(asyncio.run(raw.asked(port, raw.upgrade(port, **headers)))) == 400


FLOODS = {
    "pings": raw.frame(b"", raw.PING) * 1000,
    "long pings": raw.frame(b"x" * 125, raw.PING) * 1000,
    "pongs": raw.frame(b"", raw.PONG) * 1000,
    "empty messages": raw.frame(b"") * 1000,
    "states": raw.frame(b'{"type": "state"}') * 1000,
    "empty fragments": raw.frame(b"", first=0) * 1000,
    "short fragments": raw.frame(b"x", first=0) * 1000,
    "fragments between pings": (raw.frame(b"", first=0) + raw.frame(b"", raw.PING)) * 500,
}


def test_floods_take_bounded_memory_and_leave_others_their_turn():
    async def flood(port, name):
        """Send up to 200,000 frames without reading answers."""
        _, writer = await raw.session(port)
        if "fragment" in name:
            writer.write(raw.frame(b"", first=1))
        writer.transport.pause_reading()
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
            for _ in range(200):
                writer.write(FLOODS[name])
                await asyncio.wait_for(writer.drain(), 1)
        return writer

    async def main(port, memory):
        await plays(port)
        before = memory()
        flooding = [asyncio.ensure_future(flood(port, name)) for name in FLOODS]
        waits = [await plays(port) for _ in range(20)]
        writers = await asyncio.gather(*flooding)
        grown = memory() - before
        for writer in writers:
            writer.transport.abort()
        assert grown < 60
        assert max(waits) < 20
        await plays(port)

    with started() as (port, memory):
        asyncio.run(main(port, memory))


def test_messages_that_wait_for_a_step_take_bounded_memory():
    """While one step runs, a client sends 32 messages of the largest size and very many small ones."""

    async def send(port, data, times):
        reader, writer = await raw.session(port)
        writer.write(raw.frame(RESET))
        await raw.read_frame(reader)
        writer.write(raw.frame(b'{"type": "step", "data": {"message": "sleep 3"}}'))
        with contextlib.suppress(asyncio.TimeoutError):
            for _ in range(times):
                writer.write(data)
                await asyncio.wait_for(writer.drain(), 0.5)
        return writer

    async def main(port, memory):
        await plays(port)
        before = memory()
        large, small = raw.frame(bytes(1_000_000)), raw.frame(b"{}") * 1000
        writers = await asyncio.gather(send(port, large, 32), send(port, small, 500))
        grown = memory() - before
        for writer in writers:
            writer.transport.abort()
        assert grown < 20

    odd.register()
    with started("--call-timeout", "20", id="test:OddAwaits-v0") as (port, memory):
        asyncio.run(main(port, memory))


def test_bodies_before_the_token_are_not_kept(tmp_path):
    async def main(port, memory):
        before = memory()
        head = raw.request("POST /mcp HTTP/1.1", Host="localhost", Content_Length=8_388_608)
        writers = []
        for _ in range(30):
            _, writer = await raw.opened(port, head)
            writers.append(writer)
            with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
                for _ in range(8):
                    writer.write(bytes(1_000_000))
                    await asyncio.wait_for(writer.drain(), 0.2)
        grown = memory() - before
        for writer in writers:
            writer.transport.abort()
        assert grown < 20

    (tmp_path / "token").write_text("secret")
    with started("--token-file", str(tmp_path / "token")) as (port, memory):
        asyncio.run(main(port, memory))


def test_pipelined_requests_take_bounded_memory():
    async def main(port, memory):
        before = memory()
        request = raw.request("GET /schema HTTP/1.1", Host="localhost")
        writers = []
        for _ in range(5):
            _, writer = await raw.opened(port, request)
            writer.transport.pause_reading()
            writers.append(writer)
            with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
                for _ in range(100):
                    writer.write(request * 1000)
                    await asyncio.wait_for(writer.drain(), 0.5)
        grown = memory() - before
        for writer in writers:
            writer.transport.abort()
        assert grown < 20
        await plays(port)

    with started() as (port, memory):
        asyncio.run(main(port, memory))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost.example"])
def test_the_command_refuses_other_addresses_without_a_token(host, capsys, monkeypatch):
    from gem_lab import main

    for variable in ("OPENENV", "SEARCH", "MCP"):
        monkeypatch.delenv(f"GEM_CORE_{variable}_TOKEN", raising=False)
    for words in (["openenv", GUESS], ["search"], ["mcp", GUESS, "--port", "0"]):
        assert main(["serve", *words, "--host", host]) == 2
        assert "set a token" in capsys.readouterr().err
