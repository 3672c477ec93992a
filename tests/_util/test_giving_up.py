"""Bounded resources behind threads: ten times more callers than places, a limit shorter than the queue.

The tests hold all places themselves, so nothing depends on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gem_core._util.places import GivenUp, Places
from gem_core._util.threads import ThreadCall, ThreadPool
from gem_core._util.waiting import Overdue
from gem_envs.sandbox import ProgramLimits, _container, _process, self_check
from gem_envs.sandbox._in_process import InProcess
from gem_envs.sandbox._process import Process
from gem_envs.sandbox._program import cores
from gem_envs.tools import _loop
from gem_envs.tools._http import HttpClient
from gem_envs.tools.mcp._limited import run_limited
from tests.sandbox.test_container_engine import Engine, encoded

LIMIT = 0.1
LONG = ProgramLimits(wall_seconds=60, cpu_seconds=60)
ENDLESS = "import time\ntime.sleep(60)"


@dataclass
class Resource:
    """A bounded resource.

    Attributes:
        short: A call that takes a place and returns "ok".
        long: A call that takes a place for a minute, unless it is stopped; None if it cannot be stopped.
        places: Its places; None if every call gets one.
    """

    short: Callable[[], object]
    long: Callable[[], object] | None
    places: Places | None


def said(where: Any) -> str:
    return str(where.run("print('ok', end='')", limits=LONG).stdout)


@contextlib.contextmanager
def isolated() -> Iterator[Any]:
    namespace = pytest.importorskip("gem_envs.sandbox._namespace", reason="Linux only")
    if not self_check()["namespace"].available:
        pytest.skip("level namespace does not work here")
    with contextlib.closing(namespace.Namespace(workers=1)) as sandbox:
        yield sandbox


@contextlib.contextmanager
def namespace(folder: Path) -> Iterator[Resource]:
    with isolated() as sandbox:
        yield Resource(lambda: said(sandbox), lambda: sandbox.run(ENDLESS, limits=LONG), sandbox._slots)


@contextlib.contextmanager
def session(folder: Path) -> Iterator[Resource]:
    with isolated() as sandbox, contextlib.closing(sandbox.session()) as one:
        yield Resource(lambda: said(one), lambda: one.run(ENDLESS, limits=LONG), one._turn)


@contextlib.contextmanager
def own_process(folder: Path) -> Iterator[Resource]:
    sandbox = Process()
    yield Resource(lambda: said(sandbox), lambda: sandbox.run(ENDLESS, limits=LONG), _process._places)


@contextlib.contextmanager
def this_process(folder: Path) -> Iterator[Resource]:
    yield Resource(lambda: said(InProcess()), None, InProcess._turn)


@contextlib.contextmanager
def stub_container(folder: Path) -> Iterator[Resource]:
    engine = Engine(folder)
    answer = {"out": encoded("ok"), "err": "", "exit": 0, "timed_out": False, "files": {}, "id": "@ID@"}

    def run(seconds: float) -> str:
        engine.answer(answer, wait=seconds)
        return str(engine.sandbox.run("", limits=LONG).stdout)

    yield Resource(lambda: run(0), lambda: run(60), _container._places)


@contextlib.contextmanager
def trusted_worker(folder: Path) -> Iterator[Resource]:
    pytest.importorskip("reasoning_gym", reason="the package of the workers")
    from gem_envs._rg import trusted

    module = "tests.envs.rg.slow"

    def short() -> str:
        return "ok" if trusted.call(f"{module}:add", 1, 1, cpu_seconds=20) == 2 else ""

    assert short() == "ok"
    yield Resource(short, lambda: trusted.call(f"{module}:forever", cpu_seconds=60), trusted._places[module])
    trusted.close_workers()


@contextlib.contextmanager
def limited_process(folder: Path) -> Iterator[Resource]:
    yield Resource(
        lambda: run_limited("builtins:str", 5, object="ok"),
        lambda: run_limited("tests.envs.rg.slow:forever", 60),
        None,
    )


@contextlib.contextmanager
def http(folder: Path) -> Iterator[Resource]:
    stop = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    def answer(link: socket.socket) -> None:
        with link:
            while b"/short" in link.recv(4096):
                link.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"ok"')
            stop.wait(60)

    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = HttpClient(url, connections=2, timeout=60, retries=9)
        try:
            yield Resource(lambda: client.get("/short", {}), lambda: client.get("/long", {}), client._free)
        finally:
            stop.set()
            thread.join()
            client.close()


RESOURCES = {
    "namespace": namespace,
    "session": session,
    "process": own_process,
    "none": this_process,
    "container": stub_container,
    "trusted": trusted_worker,
    "limited": limited_process,
    "http": http,
}


@pytest.fixture
def resource(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Resource]:
    with RESOURCES[request.param](tmp_path) as resource:
        yield resource


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(10 * max(4 * cores(), 8), "gem-test")
    yield pool
    pool.shutdown(timeout=30)
    assert not any(thread.name == "gem-test" and thread.is_alive() for thread in threading.enumerate())


async def settled(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("resource", [name for name in RESOURCES if name != "limited"], indirect=True)
def test_callers_that_wait_are_not_overdue_and_those_that_leave_never_run(
    resource: Resource, pool: ThreadPool
) -> None:
    places = resource.places
    assert places is not None
    count = places._count

    async def play() -> list[ThreadCall[object]]:
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(places.held())
            calls = [ThreadCall(resource.short, pool) for _ in range(10 * count)]
            await settled(lambda: places.waiting == 10 * count)
            limit = LIMIT + max(call.clock.seconds for call in calls)  # which stand now
            waiters = [asyncio.ensure_future(call.outcome(limit)) for call in calls]
            await asyncio.sleep(2 * limit)
            assert not any(waiter.done() for waiter in waiters)
            for waiter in waiters[1:]:
                waiter.cancel()
            await settled(lambda: places.waiting == 1)
            await settled(lambda: all(call.future.done() for call in calls[1:]))
            waiters[0].cancel()
            await settled(calls[0].future.done)  # else it may still get a place below
            last = ThreadCall(resource.short, pool)
            await settled(lambda: places.waiting == 1)
        assert await last.outcome(60) == ("ok", None)
        return calls

    calls = asyncio.run(play())
    assert calls
    assert all(isinstance(call.future.exception(30), GivenUp) for call in calls)
    assert places._free == count


@pytest.mark.parametrize("resource", [name for name in RESOURCES if name != "none"], indirect=True)
def test_a_call_that_is_given_up_frees_its_place(resource: Resource, pool: ThreadPool) -> None:
    long, places = resource.long, resource.places
    assert long is not None
    count = 2 if places is None else min(2, places._count)

    async def play() -> None:
        assert await ThreadCall(resource.short, pool).outcome(60) == ("ok", None)
        calls = [ThreadCall(long, pool) for _ in range(count)]
        if places is not None:
            await settled(lambda: places._free == places._count - count)
        for call in calls:
            with pytest.raises(Overdue):
                await call.outcome(3 * LIMIT)
        await settled(lambda: all(call.future.done() for call in calls))
        assert all(isinstance(call.future.exception(), GivenUp) for call in calls)
        assert places is None or places._free == places._count
        assert await ThreadCall(resource.short, pool).outcome(60) == ("ok", None)

    asyncio.run(play())


def test_a_blocked_thread_cancels_what_it_waits_for_on_the_background_loop(pool: ThreadPool) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    async def play() -> None:
        call = ThreadCall(lambda: _loop.run(work()), pool)
        with pytest.raises(Overdue):
            await call.outcome(LIMIT)
        await settled(lambda: call.future.done())
        assert isinstance(call.future.exception(), GivenUp)
        await settled(lambda: ended == ["ended"])

    asyncio.run(play())
