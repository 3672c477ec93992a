"""Environments of a server are closed once, off the event loop, after their last call, whatever happens."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extra 'serve'")

from gem_bridges.openenv._client import Address, ClientSession
from gem_bridges.openenv._hosts import ThreadHost
from gem_bridges.openenv._server import serve_env
from gem_bridges.openenv._session_workers import ANSWER, CLOSE, LocalSessions
from gem_bridges.openenv._workers import WorkerHost
from gem_core import make
from gem_core._workers import EnvRecipe
from gem_core.errors import EnvError
from tests.bridges.openenv.serving import play, serving
from tests.support import recorded
from tests.support.recorded import IDS, Record, runs, wait_until

RESET = b'{"type": "reset", "data": {}}'


@pytest.fixture(scope="module", autouse=True)
def ids():
    recorded.register()


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "record")


def served(id, record, call_timeout=30, **seconds):
    workers = int("Computes" in id)
    return serve_env(id, {"path": str(record._path), **seconds}, workers=workers, call_timeout=call_timeout)


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("patience", [0.05, 0.4])
def test_a_client_that_leaves_while_its_environment_is_built(record, id, patience):
    """The second one leaves in the first step."""

    async def leave(url):
        session = await ClientSession.open(Address.parse(url), None, 30)
        with contextlib.suppress(EnvError):  # no answer in time
            await session.ask("reset", {}, patience)
            await session.ask("step", {"message": "0.3"}, 0.05)
        session.close()

    async def main(url):
        await asyncio.gather(*(leave(url) for _ in range(4)))

    with serving(served(id, record, build=0.2)) as running:
        play(main(running.url))
    assert record.count("built")
    assert record.open() == set()
    assert record.closed_while_stepping() == []


@pytest.mark.parametrize("id", IDS)
def test_no_closeruns_on_the_event_loop(record, id):
    """Not when the client leaves, with or without a running step, and not when a step raises."""

    async def main(url):
        sessions = [await ClientSession.open(Address.parse(url), None, 30) for _ in range(3)]
        for session in sessions:
            await session.ask("reset", {}, 30)
        with pytest.raises(EnvError, match="as asked"):
            await sessions[0].ask("step", {"message": "raise"}, 30)
        with contextlib.suppress(EnvError):
            await sessions[1].ask("step", {"message": "0.2"}, 0.05)
        for session in sessions:
            session.close()

    with serving(served(id, record, close=0.1)) as running:
        loop_thread = running.do(_thread_name())
        before = record.count("closed")
        play(main(running.url))
        wait_until(lambda: record.count("closed") == before + 3)
    threads = {line[2] for line in record.lines()[2:] if line[0] == "closed"}  # the first was built here
    assert threads
    assert loop_thread not in threads
    assert record.closed_while_stepping() == []


async def _thread_name():
    import threading

    return threading.current_thread().name.replace(" ", "")


@pytest.mark.parametrize("id", [IDS[1], IDS[3]])
def test_a_step_that_takes_too_long_is_not_disturbed_by_the_close(record, id):
    async def main(url):
        session = await ClientSession.open(Address.parse(url), None, 30)
        await session.ask("reset", {}, 30)
        with pytest.raises(EnvError, match=r"within 1 s"):
            await session.ask("step", {"message": "3"}, 30)
        await session.ask("reset", {}, 30)  # in a new environment
        session.close()

    with serving(served(id, record, call_timeout=1)) as running:
        play(main(running.url))
    assert record.open() == set()
    assert record.count("ends") == 1
    assert record.closed_while_stepping() == []


def test_a_queued_step_whose_client_leaves_does_not_stop_the_loop(record):
    """The callback of a canceled future runs on the event loop."""

    async def main():
        host = ThreadHost(lambda: make(IDS[1], path=str(record._path), close=0.3), IDS[1], None)
        seats = [host.open() for _ in range(40)]  # more than there are threads
        for seat in seats:
            await host.answer(seat, RESET)
        step = b'{"type": "step", "data": {"message": "0.3"}}'
        tasks = [asyncio.ensure_future(host.answer(seat, step)) for seat in seats]
        await asyncio.sleep(0.05)
        for task, seat in zip(tasks, seats, strict=True):
            task.cancel()
            host.close(seat)
        await host.stop()
        return await _thread_name()

    loop_thread = asyncio.run(main())
    assert record.open() == set()
    assert loop_thread not in record.closing_threads()
    assert record.closed_while_stepping() == []


@pytest.mark.parametrize("id", IDS)
def test_sigterm_closes_the_environments_of_running_episodes(record, id):
    command = [
        sys.executable, "-c",
        "import sys\nfrom gem_lab import main\nfrom tests.support import recorded\nrecorded.register()\n"
        "sys.exit(main(sys.argv[1:]))",
        "serve", "openenv", f"{id}(path={str(record._path)!r},close=0.3)", "--port", "0",
        "--drain-timeout", "0.2", "--workers", str(int("Computes" in id)),
    ]  # fmt: skip

    async def main(url, end):
        sessions = [await ClientSession.open(Address.parse(url), None, 30) for _ in range(3)]
        for session in sessions:
            await session.ask("reset", {}, 30)
        assert len(record.open()) == 3
        end()
        await asyncio.sleep(0.5)
        for session in sessions:
            session.close()

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[-1]
            play(main(url, process.terminate))
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert record.open() == set()


def test_a_worker_that_is_being_replaced_ends_with_the_server():
    recorded.register()

    async def main():
        host = WorkerHost("process", EnvRecipe(make(IDS[2], path=os.devnull).spec), 2, None)
        await host.start()
        pids = [worker.worker.pid for worker in host._workers]
        started = []
        start_worker = host._start_worker

        async def start(number):
            started.append(number)
            worker = await start_worker(number)
            pids.append(worker.worker.pid)
            return worker

        host._start_worker = start
        os.kill(pids[0], signal.SIGKILL)
        while not started:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # its process is starting
        await host.stop()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert others == []
        assert host._workers == []
        return pids

    pids = asyncio.run(main())
    assert len(pids) >= 2
    assert not any(map(runs, pids))
    assert not _children_with("spawn_main")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes in /proc")
@pytest.mark.parametrize("kind", ["idle", "in a step", "starting"])
def test_workers_of_a_server_that_was_killed_end(record, kind):
    code = f"""
import asyncio
from gem_bridges.openenv import _workers as workers
from gem_core import make
from gem_core._workers import EnvRecipe
from tests.support import recorded
recorded.register()
workers.END_SECONDS = 0.3
start = workers.start_worker
def show(*args):
    worker = start(*args)
    print(worker.pid, flush=True)
    return worker
workers.start_worker = show
async def main():
    recipe = EnvRecipe(make({IDS[2]!r}, path={str(record._path)!r}).spec)
    host = workers.WorkerHost("process", recipe, 1, None)
    await host.start()
    seat = host.open()
    await host.answer(seat, {RESET!r})
    print("ready", flush=True)
    if {kind == "in a step"}:
        await host.answer(seat, b'{{"type": "step", "data": {{"message": "spawn"}}}}')
    await asyncio.sleep(300)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        try:
            if kind != "starting":
                assert process.stdout.readline() == "ready\n"
                if kind == "in a step":
                    wait_until(record.spawned)
            process.kill()
            wait_until(lambda: not any(map(runs, [pid, *record.spawned()])))
        finally:
            process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


@pytest.mark.parametrize("id", [IDS[1], IDS[3]])
def test_an_actor_answers_each_message_of_a_session_that_ends_in_the_same_moment(record, id):
    """An `await` lies between a message and its task; both records may arrive before."""

    class Writer:
        def __init__(self):
            self.records = []

        def write(self, data):
            self.records.append(data)

    async def main():
        env = make(id, path=str(record._path))
        actor = LocalSessions(None, EnvRecipe(env.spec), env, None)
        actor._writer = writer = Writer()
        for number in range(100):
            actor.take(number, ANSWER, RESET)
            if number % 2:
                await asyncio.sleep(0)
            actor.take(number, CLOSE, b"")
        while actor._tasks:
            await asyncio.sleep(0.01)
        await actor._host.stop()
        return writer.records

    assert {int.from_bytes(record[:8], "little") for record in asyncio.run(main())} == set(range(100))
    assert len(record.open()) == 1  # the one that this test made


def _children_with(word):
    """Return the children of this process whose command has a word."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError):
            parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and word in Path(f"/proc/{name}/cmdline").read_text():
                found.append(int(name))
    return found
