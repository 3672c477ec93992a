"""Trusted functions on untrusted text: a fresh process per call, at the strongest level."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gem_envs.sandbox import ProgramLimits, _calls, self_check
from gem_envs.sandbox._calls import CallError, Calls, CallTimeout
from gem_envs.sandbox._levels import LevelCheck

FUNCTIONS = """
import os, sys, time

table = {"score": 0.0}
warm = False

def warm_up():
    global warm
    warm = True

def add(a, b):
    print("noise")
    os.write(1, b"") if warm else None
    return a + b

def process():
    return os.getpid(), os.getppid(), time.monotonic_ns()

def evaluate(text):
    "Stub of a library that can be tricked into running the text."
    exec(text, {"table": table, "module": sys.modules[__name__]})
    return table["score"]

def read(path):
    with open(path) as file:
        return file.read()

def forever():
    while True:
        pass

def memory():
    return len(bytearray(2**40))

def nothing_json():
    return {1, 2}

def flood():
    return "x" * 10**6
"""
needs_namespace = pytest.mark.skipif(
    not self_check()["namespace"].available, reason="level 'namespace' is not available on this machine"
)


@pytest.fixture(params=[pytest.param("namespace", marks=needs_namespace), "process"])
def call(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    monkeypatch.setattr(_calls, "strongest", lambda: LevelCheck(request.param, True, "as the test says"))
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS)
    made = Calls(file, packages=())
    yield made
    assert made.level == request.param
    made.close()


def test_a_result_is_returned(call: Calls) -> None:
    assert call("add", [1], [None, "é\0\ud800"]) == [1, None, "é\0\ud800"]


def test_nothing_outlives_a_call(call: Calls) -> None:
    attack = "table['score'] = 1.0; module.evaluate = lambda text: 1.0; module.add = lambda *_: 'forged'"
    assert call("evaluate", attack) == 1.0, "the attack works within its own call"
    for _ in range(8):
        assert call("evaluate", "0") == 0.0
        assert call("add", 1, 2) == 3
    times = [call("process")[2] for _ in range(4)]
    assert len(set(times)) == 4
    if call.level == "process":
        assert len({call("process")[0] for _ in range(6)} | {os.getpid()}) == 7


@needs_namespace
def test_files_of_the_machine_are_inaccessible(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "secret").write_text("secret")
    call = Calls(tmp_path / "functions.py", packages=())
    assert call.level == "namespace"
    with pytest.raises(CallError, match="FileNotFoundError"):
        call("read", str(tmp_path / "secret"))
    call.close()


def test_what_a_function_does_wrong_is_an_error(call: Calls) -> None:
    with pytest.raises(CallError, match="ZeroDivisionError"):
        call("evaluate", "1 / 0")
    with pytest.raises(CallError, match="TypeError"):
        call("nothing_json")
    with pytest.raises(CallError, match="MemoryError"):
        call("memory")
    with pytest.raises(CallError, match="did not write JSON"):
        call("flood")
    with pytest.raises(CallError):
        call("evaluate", "import os; os._exit(0)")
    with pytest.raises(CallError):
        call("evaluate", "import os; os._exit(7)")
    assert call("add", 1, 2) == 3


def test_a_call_that_hangs_is_ended(call: Calls) -> None:
    with pytest.raises(CallTimeout, match="1 seconds of CPU time"):
        call("forever", limits=ProgramLimits(cpu_seconds=1.0, wall_seconds=60.0))
    with pytest.raises(CallTimeout):
        call("evaluate", "import time; time.sleep(60)", limits=ProgramLimits(wall_seconds=0.3))
    assert call("add", 1, 2) == 3


def test_any_thread_and_a_forked_process_may_call(call: Calls) -> None:
    before = threading.active_count()
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda n: call("add", n, 1), range(12))) == list(range(1, 13))
    with call._starts.one():  # another thread is about to start the sandbox
        child = os.fork()
        if not child:
            try:
                os._exit(0 if call("add", 20, 22) == 42 else 1)
            finally:
                os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert call("add", 1, 1) == 2
    assert threading.active_count() <= before + 1


def test_the_weaker_level_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_calls, "strongest", lambda: LevelCheck("process", True, "unshare: not permitted"))
    _calls._warn.cache_clear()
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    with caplog.at_level(logging.WARNING, logger="gem_envs.sandbox._calls"):
        for _ in range(2):
            call = Calls(tmp_path / "functions.py", packages=())
            assert call("add", 1, 2) == 3
            call.close()
    assert [record.getMessage() for record in caplog.records] == [
        "answers that need symbolic algebra are graded at sandbox level 'process', because level 'namespace' "
        "is not available on this machine: unshare: not permitted"
    ]
    _calls._warn.cache_clear()


def test_where_there_are_no_fork_servers_an_interpreter_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_calls.sys, "platform", "darwin")
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    assert Calls(tmp_path / "functions.py", packages=())("add", "a", "b") == "ab"
