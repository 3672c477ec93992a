from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gem_envs._rg import trusted

HERE = "tests.envs.rg.slow"


def call(name, *args, cpu_seconds=20.0):
    return trusted.call(f"{HERE}:{name}", *args, cpu_seconds=cpu_seconds)


def test_a_result_is_returned():
    assert call("add", 2, 3) == 5
    assert call("chatter") == "quiet"


def test_errors_of_the_function_are_reported():
    with pytest.raises(trusted.CallFailed, match="KeyError: 'no'"):
        call("fail")
    assert call("add", 1, 1) == 2


@pytest.mark.parametrize("name", ["forever", "one_long_operation"])
def test_a_call_that_hangs_is_ended_and_the_next_one_works(name):
    with pytest.raises(trusted.LimitExceeded):
        call(name, cpu_seconds=0.2)
    assert call("add", 2, 2) == 4


def test_memory_is_limited():
    with pytest.raises((trusted.CallFailed, trusted.LimitExceeded)):
        call("eat_memory")


def test_any_thread_may_call():
    def one(number):
        assert threading.current_thread() is not threading.main_thread()
        if number % 5 == 0:
            with pytest.raises(trusted.LimitExceeded):
                call("forever", cpu_seconds=0.1)
        return call("add", number, 1)

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(one, range(20))) == list(range(1, 21))


def test_the_callers_secrets_stay_here(monkeypatch):
    monkeypatch.setenv("GEM_TEST_SECRET", "x")
    trusted.close_workers()
    assert "GEM_TEST_SECRET" not in call("environment")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_makes_its_own_worker():
    call("add", 1, 1)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"ok" if call("add", 20, 22) == 42 else b"no")
        trusted.close_workers()
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert os.read(reading, 2) == b"ok"
    os.close(reading)
    assert call("add", 1, 2) == 3


def test_workers_end_with_the_program():
    code = """
        from gem_envs._rg import trusted
        assert trusted.call("tests.envs.rg.slow:add", 1, 2, cpu_seconds=20) == 3
        print(trusted._idle["tests.envs.rg.slow"][0].process.pid)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
