"""Clients that open connections and send slowly, too much, or nothing; against a server with short limits."""

import asyncio
import contextlib
import logging
import time

import pytest

pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

from gem_envs.serving import Access, HttpServer, json_response
from gem_envs.serving._guard import ConnectionLimits
from gem_envs.serving._http import read_body, send, web
from tests.serving import raw

HOST = "Host: localhost\r\n"
QUICK = ConnectionLimits(handshake=0.4, keep_alive=0.4)


async def answer(request, path):
    """Pages of the test server."""
    if path == "/body":
        return json_response({"size": len(await read_body(request, 1000, seconds=0.4))})
    if path == "/large":
        return await send(request, web.Response(body=bytes(32 << 20)), seconds=0.4)
    if path == "/fail":
        raise ValueError("a mistake of the server")
    if path == "/slow":
        await asyncio.sleep(0.5)
    if path == "/wait":
        try:
            await asyncio.sleep(100)
        finally:
            ended.set()
    if path == "/stream":
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        try:
            for number in range(1_000_000):
                await stream.write(b"data: %d\n\n" % number)
                await asyncio.sleep(0.01)
        finally:
            ended.set()
    return json_response({})


ended = asyncio.Event()


def served(play, limits=QUICK, token=None):
    """Run `play(server, port)` with a server."""

    async def main():
        global ended
        ended = asyncio.Event()
        server = HttpServer(answer, limits)
        port = await server.listen(Access.for_address("127.0.0.1", token))
        try:
            return await play(server, port)
        finally:
            await server.close()

    return asyncio.run(asyncio.wait_for(main(), 60))


async def drip(port, start, parts, pause=0.05):
    """Send `start`, then one of `parts` after each pause; return the answer and the seconds to the end."""
    began = time.monotonic()
    reader, writer = await raw.opened(port, start)

    async def write():
        with contextlib.suppress(ConnectionError):
            for part in parts:
                await asyncio.sleep(pause)
                writer.write(part)
                await writer.drain()

    writing = asyncio.ensure_future(write())
    data = b""
    with contextlib.suppress(ConnectionError):
        data = await asyncio.wait_for(reader.read(1 << 20), 20)
        while data and await asyncio.wait_for(reader.read(1 << 20), 20):
            pass
    writing.cancel()
    writer.close()
    return data, time.monotonic() - began


GET = f"GET / HTTP/1.1\r\n{HOST}".encode()
POST = f"POST /body HTTP/1.1\r\n{HOST}".encode()
SLOW = {
    "silent": (b"", []),
    "bytes of the first line": (b"GET /", [b"a"] * 400),
    "empty lines": (b"", [b"\r\n"] * 400),
    "two empty lines": (b"\r\n\r\n", [b"\r\n\r\n"] * 400),
    "headers": (GET, [b"X-%d: y\r\n" % n for n in range(90)]),
    "a header": (GET + b"X: ", [b"x"] * 400),
    "folded lines": (GET + b"X: y\r\n", [b" y\r\n"] * 400),
    "an upgrade": (GET + b"Upgrade: websocket\r\n", [b"X-%d: y\r\n" % n for n in range(90)]),
    "a body": (POST + b"Content-Length: 900\r\n\r\n", [b"x"] * 400),
    "no body": (POST + b"Content-Length: 900\r\n\r\n", []),
    "chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n", [b"1\r\nx\r\n"] * 400),
    "an extension of a chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\n1;", [b"x"] * 400),
    "trailers": (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", [b"X-%d: y\r\n" % n for n in range(90)]),
    "a second request": (GET + b"\r\nGET /", [b"a"] * 400),
    "empty lines after a request": (GET + b"\r\n", [b"\r\n"] * 400),
    "a refused body": (b"POST /body HTTP/1.1\r\nHost: evil\r\nContent-Length: 900\r\n\r\n", [b"x"] * 400),
}  # fmt: skip
"""What slow clients send at once, and then one piece at a time."""


def test_slow_clients_cannot_extend_their_time():
    async def play(server, port):
        results = await asyncio.gather(*(drip(port, *slow) for slow in SLOW.values()))
        seconds = {name: round(took, 1) for name, (_, took) in zip(SLOW, results, strict=True)}
        assert max(seconds.values()) < 10, seconds  # each would send for 20 s
        assert not server.guard.connections
        return dict(zip(SLOW, (raw.status(data) for data, _ in results), strict=True))

    statuses = served(play)
    assert statuses["silent"] == statuses["headers"] == 0
    assert statuses["a body"] == statuses["no body"] == statuses["chunks"] == 408
    assert statuses["a second request"] == 200
    assert statuses["a refused body"] == 421


def test_work_and_streams_last_longer_than_a_handshake():
    async def play(server, port):
        slow = raw.request("GET /slow HTTP/1.1", Host="localhost", Connection="close")
        assert raw.status(await raw.asked(port, slow)) == 200
        for path in ("/stream", "/wait"):  # the handler of a client that is gone ends
            ended.clear()
            reader, writer = await raw.opened(port, raw.request(f"GET {path} HTTP/1.1", Host="localhost"))
            if path == "/stream":
                await reader.readuntil(b"data: 60\n\n")
            else:
                await asyncio.sleep(0.5)
            assert not ended.is_set()
            writer.transport.abort()
            await asyncio.wait_for(ended.wait(), 20)

    served(play)


def test_a_client_that_does_not_read_loses_its_answer():
    async def play(server, port):
        _, writer = await raw.opened(port, raw.request("GET /large HTTP/1.1", Host="localhost"))
        writer.transport.pause_reading()
        deadline = time.monotonic() + 20
        while server.guard.connections or not server._server.requests_count:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        writer.close()

    served(play)


def test_the_number_of_connections_is_limited():
    async def play(server, port):
        writers = [(await raw.opened(port, b"GET /"))[1] for _ in range(60)]
        deadline = time.monotonic() + 20
        while len(server.guard.connections) < 20:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert len(server.guard.connections) == 20
        assert raw.status(await raw.asked(port, GET + b"Connection: close\r\n\r\n")) == 200
        admitted = [(await raw.opened(port, GET + b"\r\n"))[1] for _ in range(60)]
        await asyncio.sleep(0.1)
        assert len(server.guard.connections) <= 40
        for writer in [*writers, *admitted]:
            writer.close()

    served(play, ConnectionLimits(most=40, waiting=20))


def test_a_host_with_many_waiting_connections_displaces_its_own():
    from gem_envs.serving._guard import Guard, GuardedConnection

    class Transport:
        def __init__(self, host, port):
            self.peer, self.aborted = (host, port), False

        def get_extra_info(self, name):
            return self.peer if name == "peername" else ("127.0.0.1", 80)

        def abort(self):
            self.aborted = True

    async def main():
        guard = Guard(ConnectionLimits(most=1000, waiting=10))
        honest = [Transport(f"10.0.0.{n}", 1) for n in range(3)]
        greedy = [Transport("10.9.9.9", n) for n in range(100)]
        for transport in [*honest, *greedy, Transport("10.0.0.8", 1)]:
            GuardedConnection(guard, asyncio.Protocol()).connection_made(transport)
        assert [transport.aborted for transport in honest] == [False] * 3
        assert sum(not transport.aborted for transport in greedy) == 6
        assert not greedy[-1].aborted
        guard.close()

    asyncio.run(main())


FLOODS = {
    "a long header": GET + b"X: " + b"x" * 20_000 + b"\r\n\r\n",
    "a header without end": GET + b"X: " + b"x" * 3_000_000,
    "a name without end": GET + b"x" * 3_000_000,
    "a line without end": b"GET /" + b"x" * 3_000_000,
    "many headers": GET + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
    "many small headers": GET + b"a: b\r\n" * 300 + b"\r\n",
    "many cookies": GET + b"Cookie: a=b\r\n" * 2000 + b"\r\n",
    "many hosts": b"GET / HTTP/1.1\r\n" + HOST.encode() * 2000 + b"\r\n",
    "long cookies": GET + b"Cookie: a=" + b"b" * 16_000 + b"\r\n\r\n",
    "no lines": b"x" * 3_000_000,
    "zeros": bytes(3_000_000),
    "a query": b"GET /?" + b"q" * 20_000 + b" HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
}


def test_heads_are_limited_in_bytes_and_number():
    async def play(server, port):
        return await asyncio.gather(*(raw.asked(port, flood) for flood in FLOODS.values()))

    statuses = dict(zip(FLOODS, map(raw.status, served(play, ConnectionLimits())), strict=True))
    assert all(status in (0, 400, 431) for status in statuses.values()), statuses
    assert statuses["a long header"] == statuses["many headers"] == 431


LENGTH = b"Content-Length: "
BAD = {
    "a length of many digits": POST + LENGTH + b"9" * 5000 + b"\r\n\r\n",
    "a length of 30 digits": POST + LENGTH + b"9" * 30 + b"\r\n\r\n",
    "a negative length": POST + LENGTH + b"-1\r\n\r\n",
    "a signed length": POST + LENGTH + b"+5\r\n\r\nhello",
    "a hexadecimal length": POST + LENGTH + b"0x5\r\n\r\nhello",
    "two lengths": POST + LENGTH + b"5\r\n" + LENGTH + b"6\r\n\r\nhello!",
    "a list of lengths": POST + LENGTH + b"5, 5\r\n\r\nhello",
    "a length in other digits": POST + LENGTH + "\u0665".encode() + b"\r\n\r\nhello",
    "length and chunks": POST + LENGTH + b"5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": POST + b"Transfer-Encoding: magic\r\n\r\n",
    "no version": b"GET /\r\n" + HOST.encode() + b"\r\n",
    "a version": b"GET / HTTP/9.9\r\n" + HOST.encode() + b"\r\n",
    "a method": b"G\x01T / HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "a target": b"GET //[ HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "an absolute target": b"GET http://[ HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "a target with spaces": b"GET / / HTTP/1.1\r\n" + HOST.encode() + b"\r\n",
    "no colon": GET + b"nocolon\r\n\r\n",
    "a space before the colon": GET + b"X : y\r\n\r\n",
    "a zero in a value": GET + b"X: a\0b\r\n\r\n",
    "a control character in a name": GET + b"X\x01: y\r\n\r\n",
    "an origin": GET + b"Origin: http://[\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
    "a mail": b"HELO localhost\r\n\r\n",
}


def test_bad_requests_are_answered_with_400_and_no_traceback(caplog):
    async def play(server, port):
        return await asyncio.gather(*(raw.asked(port, data) for data in BAD.values()))

    with caplog.at_level(logging.INFO):
        answers = served(play, ConnectionLimits())
    statuses = dict(zip(BAD, map(raw.status, answers), strict=True))
    assert {name for name, status in statuses.items() if status != 400} == set(), statuses
    assert len(caplog.text.splitlines()) <= len(BAD)
    assert "Traceback" not in caplog.text


def test_odd_paths_are_only_unknown():
    paths = ["/%ff%zz", "/%00", "/\xff", "/..%2f..", "/a?[", "/;x=[", "/%5B", "/a#b"]

    async def play(server, port):
        requests = (
            raw.request(f"GET {path} HTTP/1.1", Host="localhost", Connection="close") for path in paths
        )
        return await asyncio.gather(*(raw.asked(port, data) for data in requests))

    assert {raw.status(data) for data in served(play)} <= {200, 400}


def test_a_mistake_of_a_handler_is_logged_once_and_tells_the_client_nothing(caplog):
    async def play(server, port):
        return await raw.asked(port, raw.request("GET /fail HTTP/1.1", Host="localhost"))

    data = served(play)
    assert raw.status(data) == 500
    assert b"mistake" not in data
    assert caplog.text.count("ValueError: a mistake of the server") == 1


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
BODIES = {
    "a length": (POST + LENGTH + b"2000\r\n\r\n" + b"x" * 2000, 413),
    "a length of a gigabyte": (POST + LENGTH + b"1073741824\r\n\r\n" + b"x" * 2000, 413),
    "one chunk": (CHUNKED + b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n", 413),
    "many chunks": (CHUNKED + b"1\r\nx\r\n" * 2000 + b"0\r\n\r\n", 413),
    "chunks without end": (CHUNKED + b"1\r\nx\r\n" * 2000, 413),
    "a chunk of 16 digits": (CHUNKED + b"FFFFFFFFFFFFFFFF\r\nxx", None),
    "a chunk of 17 digits": (CHUNKED + b"10000000000000000\r\nxx", 400),
    "a signed chunk": (CHUNKED + b"-1\r\nxx", 400),
    "extensions": (CHUNKED + b"1;" + b"a" * 2_000_000 + b"\r\nx\r\n0\r\n\r\n", None),
    "trailers": (CHUNKED + b"0\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(9000)) + b"\r\n", None),
    "gzip": (POST + b"Content-Encoding: gzip\r\n" + LENGTH + b"20\r\n\r\n" + b"\x1f\x8b" + bytes(18), 200),
    "the limit": (POST + LENGTH + b"1000\r\n\r\n" + b"x" * 1000, 200),
    "a few chunks": (CHUNKED + b"3\r\nabc\r\n3\r\nabc\r\n0\r\n\r\n", 200),
}  # fmt: skip


def test_bodies_are_limited_whatever_their_form():
    async def play(server, port):
        return await asyncio.gather(*(raw.asked(port, data) for data, _ in BODIES.values()))

    got = dict(zip(BODIES, served(play), strict=True))
    for name, (_, expected) in BODIES.items():
        status = raw.status(got[name])
        assert status in ((200, 400, 408, 413) if expected is None else (expected,)), (name, got[name][:200])
    assert b'{"size": 6}' in got["a few chunks"]
    assert b'{"size": 20}' in got["gzip"]  # not unpacked
