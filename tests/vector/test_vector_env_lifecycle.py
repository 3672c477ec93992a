"""The backend that `make_vec` chooses, and the cleanup when a vector env is closed."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gem_core import EnvSpec, _registration, make_vec
from gem_core.errors import CallOrderError
from gem_core.vector import AutoresetMode
from gem_core.vector import _make as make_module
from gem_core.vector._make import _choose
from tests.support.recorded import Record, runs, wait_until
from tests.vector.envs import RELEASE, Obedient, obedient


def open_files() -> int:
    if not Path("/proc/self/fd").exists():
        pytest.skip("counts open files through /proc")
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


# -- the rule of auto ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocking", "concurrent", "cores", "expected"),
    [
        ([False], False, 2, "inline"),
        ([False], True, 2, "thread"),
        ([False, True], False, 2, "thread"),
        (["cpu", True], False, 2, "process"),
        (["cpu"], False, 1, "thread"),
    ],
)
def test_auto_follows_what_the_environments_declare(
    blocking: Any, concurrent: bool, cores: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_module, "_usable_cores", lambda: cores)
    assert _choose(blocking, concurrent) == expected


def test_auto_in_make_vec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_module, "_usable_cores", lambda: 2)
    for kwargs, backend in [
        ({}, "inline"),
        ({"async_mode": True}, "thread"),
        ({"timeout": 9.0}, "thread"),
        ({"blocking": True}, "thread"),
        ({"blocking": "cpu"}, "process"),
        ({"backend": "inline", "blocking": "cpu"}, "inline"),
    ]:
        with obedient(2, **kwargs) as envs:
            assert envs.backend == backend
            assert backend in repr(envs)


# -- what is sent to a worker ---------------------------------------------------------------------


def test_specs_and_wrapper_names_of_this_process_are_known_in_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        _registration._wrappers,
        "_values",
        {**_registration.wrapper_entry_points(), "test_loud": "tests.vector.envs:Loud"},
    )
    for backend in ("inline", "process"):
        with obedient(1, backend=backend, wrappers="test_loud") as envs:
            observations, _ = envs.reset(seed=0)
            assert observations == [Obedient().reset(0)[0].upper()]


# -- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["inline", "thread", "process"])
def test_nothing_is_left_after_close(backend: str) -> None:
    obedient(2, backend="process").close()  # starts multiprocessing's helper process, which stays
    threads, files = set(threading.enumerate()), open_files()  # those of other tests may end meanwhile
    for _ in range(2):
        envs = obedient(backend=backend, max_workers=2)
        envs.reset()
        envs.send({0: "go", 1: "go"})
        envs.close()
        envs.close()
    assert set(threading.enumerate()) <= threads
    assert open_files() <= files
    assert multiprocessing.active_children() == []


def test_a_lost_worker_leaves_nothing_either() -> None:
    obedient(2, backend="process").close()
    files = open_files()
    with obedient(2, backend="process", max_workers=1) as envs:
        envs.reset()
        envs.step(["die", "go"])
    assert open_files() <= files
    assert multiprocessing.active_children() == []


def test_close_closes_every_environment() -> None:
    closed: list[int] = []

    class Closing(Obedient):
        def close(self) -> None:
            closed.append(1)

    for backend in ("inline", "thread"):
        with make_vec(EnvSpec("test:Closing-v0", Closing), 3, backend=backend):  # type: ignore[arg-type]
            pass
    assert len(closed) == 6


def test_an_abandoned_thread_closes_its_environment_when_it_comes_back() -> None:
    closed = threading.Event()

    class Closing(Obedient):
        def close(self) -> None:
            if self.turn:
                closed.set()

    with make_vec(EnvSpec("test:Closing-v0", Closing), backend="thread", timeout=1.0) as envs:
        envs.reset()
        threads = threading.active_count()
        assert "TimeoutError" in envs.step(["hang"]).infos[0]["error"]
        assert not closed.is_set()
        RELEASE.set()
        assert closed.wait(30)
        assert threading.active_count() <= threads + 1


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_close_wakes_a_recv_in_another_thread(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"thread": "threads", "process": "slices"}[backend]
    monkeypatch.setattr(f"gem_core.vector._{module}.GRACE", 0.1)
    envs = obedient(1, backend=backend)
    envs.reset()
    envs.send({0: "hang"})
    seen: list[str] = []

    def receive() -> None:
        try:
            envs.recv()
        except CallOrderError as error:
            seen.append(str(error))

    waiter = threading.Thread(target=receive)
    waiter.start()
    envs.close()
    waiter.join(30)
    assert len(seen) == 1
    assert "closed" in seen[0]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches the worker through a Linux pidfd")
def test_a_worker_ends_with_its_parent() -> None:
    """A worker also ends if the vector env is not closed, and if the parent is killed."""
    script = (
        "import sys\n"
        "from gem_core import EnvSpec\n"
        "from gem_core import make_vec\n"
        "if __name__ == '__main__':\n"
        "    envs = make_vec(EnvSpec('test:O-v0', 'tests.vector.envs:Obedient'), backend='process')\n"
        "    envs.reset()\n"
        "    print(envs.step(['go']).infos[0]['pid'], flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    root = Path(__file__).parents[2]
    for kill in (False, True):
        parent = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
        )
        assert parent.stdin is not None
        assert parent.stdout is not None
        worker = os.pidfd_open(int(parent.stdout.readline()))
        if kill:
            parent.send_signal(signal.SIGKILL)
        parent.stdin.close()
        parent.wait(30)
        parent.stdout.close()
        ended, _, _ = select.select([worker], [], [], 30)
        os.close(worker)
        assert ended


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes in /proc")
def test_a_worker_in_a_step_ends_with_a_parent_that_was_killed_and_so_does_what_it_started(
    tmp_path: Path,
) -> None:
    record = Record(tmp_path / "record")
    script = (
        "from gem_core import EnvSpec\n"
        "from gem_core import make_vec; from gem_core.vector import _slices as slices\n"
        "slices.GRACE = 0.3\n"
        "if __name__ == '__main__':\n"
        f"    kwargs = {{'path': {str(tmp_path / 'record')!r}}}\n"
        "    spec = EnvSpec('test:R-v0', 'tests.support.recorded:RecordedComputes', kwargs=kwargs)\n"
        "    envs = make_vec(spec, backend='process')\n"
        "    envs.reset()\n"
        "    envs.step(['spawn'])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    try:
        wait_until(record.spawned)
        pids = [*record.spawned(), *(int(line[1].partition("-")[0]) for line in record.lines())]
        assert len(set(pids)) == 2
        assert all(map(runs, pids))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not any(map(runs, pids)))


# -- async ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_async_calls_leave_the_loop_free_and_lose_nothing_when_canceled(backend: str) -> None:
    async def play() -> dict[int, Any]:
        with obedient(2, backend=backend, autoreset=AutoresetMode.DISABLED) as envs:
            await envs.areset(seed=0)
            assert (await envs.astep(["go", "go"])).observations == ["turn 1", "turn 1"]
            envs.send({0: "go"})
            assert list(await envs.arecv()) == [0]
            envs.send({1: "go"})
            impatient = asyncio.ensure_future(envs.arecv(min_ready=1))
            await asyncio.sleep(0)
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            return await envs.arecv()

    assert {i: result[0] for i, result in asyncio.run(play()).items()} == {1: "turn 2"}


@pytest.mark.parametrize("call", ["await envs.astep(['hang'])", "await envs.arecv()"])
def test_an_environment_that_hangs_does_not_keep_the_program_from_ending(call: str) -> None:
    code = f"""
import asyncio
from gem_core import make_vec
from tests.vector.envs import OBEDIENT

async def main():
    envs = make_vec(OBEDIENT, 1, backend="thread")
    await envs.areset(seed=0)
    if "recv" in {call!r}:
        envs.send({{0: "hang"}})
    async def wait():
        {call}
    waiting = asyncio.ensure_future(wait())
    await asyncio.wait({{waiting}}, timeout=0.1)
    assert not waiting.done()
    waiting.cancel()

asyncio.run(main())
print("ended")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.returncode) == ("ended\n", 0), ended.stderr


def test_recv_with_a_time_limit_returns_what_there_is() -> None:
    with obedient(2, backend="thread") as envs:
        envs.reset()
        envs.send({0: "hang", 1: "go"})
        assert list(envs.recv(min_ready=1)) == [1]
        assert envs.recv(timeout=0.01) == {}
        assert envs.recv(min_ready=0) == {}
        RELEASE.set()
        assert list(envs.recv()) == [0]


def test_recv_takes_all_that_is_ready_without_waiting() -> None:
    with obedient(3) as envs:
        envs.reset()
        envs.send({2: "go", 0: "go"})
        assert list(envs.recv(min_ready=0)) == [2, 0]


def test_others_may_send_and_reset_while_one_task_waits_for_a_slow_environment() -> None:
    async def play() -> None:
        with obedient(3, backend="thread") as envs:
            await envs.areset(seed=0)
            envs.send({0: "hang", 1: "go"})
            assert list(await envs.arecv()) == [1]
            waiting = asyncio.ensure_future(envs.arecv(min_ready=2))
            while not envs._mail.waiting:  # until the task above is inside the backend
                await asyncio.sleep(0)
            assert (await envs.areset(seed=5, mask=[False, True, False]))[0][1] == Obedient().reset(6)[0]
            assert (await envs.astep({2: "go"})).observations == ["turn 1"]
            envs.send({1: "go"})
            assert not waiting.done()
            RELEASE.set()
            assert sorted(await waiting) == [0, 1]

    asyncio.run(play())


def test_an_interrupted_step_does_not_block_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with obedient(2, backend="thread") as envs:
        envs.reset(seed=0)
        with monkeypatch.context() as patch:
            patch.setattr(envs._backend, "wait", lambda timeout: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                envs.step(["go", "go"])
        assert envs.step(["go", "go"]).observations == ["turn 2", "turn 2"]


def test_slow_environments_do_not_hold_back_a_masked_reset() -> None:
    with obedient(2, backend="thread") as envs:
        envs.reset(seed=0)
        envs.send({0: "hang"})
        observations, _ = envs.reset(seed=5, mask=[False, True])
        assert observations[1] == Obedient().reset(6)[0]
        envs.send({1: "go"})
        assert list(envs.recv()) == [1]
        RELEASE.set()
        assert list(envs.recv()) == [0]
