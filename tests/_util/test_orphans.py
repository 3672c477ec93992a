"""Processes of callers that are killed. The callers are processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes in /proc")

CALLER = """
import os, subprocess, sys, threading, time
from gem_core._util.orphans import announced, end_with_us, release
def start(code, grace=0.0):
    command, pipes = announced([sys.executable, "-S", "-c", code], grace)
    process = subprocess.Popen(command, pass_fds=pipes, start_new_session=True, stdout=2)
    end_with_us(process.pid, grace)
    return process
SLEEP = "import time; time.sleep(300)"
"""


class Caller:
    """A caller that prints the process ids to watch in one line, then waits."""

    def __init__(self, code):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CALLER + code + "\ntime.sleep(300)"], stdout=subprocess.PIPE, text=True
        )
        self.pids = [int(word) for word in self.process.stdout.readline().split()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        for pid in self.pids:
            if running(pid):
                os.kill(pid, signal.SIGKILL)

    def left(self, seconds=60.0):
        """Return which of the processes still run; wait until none does."""
        end = time.monotonic() + seconds
        while (left := [pid for pid in self.pids if running(pid)]) and time.monotonic() < end:
            time.sleep(0.02)
        return left


def running(pid):
    """Return whether a process runs; one that nobody reaps has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_groups_end_with_their_caller_however_it_ends(end):
    both = (
        "import os, time; me, it = os.getpid(), os.fork(); it and print(me, it, flush=True); time.sleep(300)"
    )
    code = f"""
one = subprocess.Popen([sys.executable, "-S", "-c", {both!r}], start_new_session=True, stdout=subprocess.PIPE)
end_with_us(one.pid)
ids = [int(word) for word in one.stdout.readline().split()]
threading.Thread(target=lambda: ids.append(start(SLEEP).pid)).start()  # a thread that has ended
time.sleep(0.2)
print(*ids, flush=True)
"""
    with Caller(code) as caller:
        assert len(caller.pids) == 3
        assert all(map(running, caller.pids))
        caller.process.send_signal(end)
        assert caller.left() == []


def test_a_forked_child_of_the_caller_keeps_nothing_alive_and_has_a_watcher_of_its_own():
    code = """
mine = start(SLEEP)
if not os.fork():
    time.sleep(300)
    os._exit(0)
reading, writing = os.pipe()
if not (other := os.fork()):
    os.write(writing, str(start(SLEEP).pid).encode())
    time.sleep(300)
    os._exit(0)
theirs = int(os.read(reading, 20))
print(mine.pid, flush=True)
print(theirs, other, flush=True)
"""
    with Caller(code) as caller:
        theirs, other = map(int, caller.process.stdout.readline().split())
        caller.process.kill()
        assert caller.left() == []
        assert running(theirs)
        os.kill(other, signal.SIGKILL)
        caller.pids = [theirs]
        assert caller.left() == []


def test_a_grace_and_a_watcher_that_was_killed():
    code = """
from gem_core._util import orphans
ends_itself = start("import time; time.sleep(1.0); print('ended itself')", 60.0)
hung = start(SLEEP, 2.0)
released = start(SLEEP)
release(released.pid)
orphans._watcher.process.kill()
orphans._watcher.process.wait()
later = start(SLEEP)  # notices, and starts another watcher
print(ends_itself.pid, hung.pid, later.pid, released.pid, flush=True)
"""
    with Caller(code) as caller:
        released = caller.pids.pop()
        caller.process.kill()
        began = time.monotonic()
        hung = caller.pids[1]
        caller.pids.remove(hung)
        assert caller.left() == []
        caller.pids = [hung]
        assert caller.left() == []
        assert time.monotonic() - began > 1.5
        assert running(released)
        os.kill(released, signal.SIGKILL)


def test_the_watcher_ends_with_the_caller():
    code = "from gem_core._util import orphans\nstart(SLEEP)\nprint(orphans._watcher.process.pid, flush=True)"
    with Caller(code) as caller:
        caller.process.kill()
        assert caller.left() == []


CHECKER = """
import threading
from gem_core._util import orphans
from gem_lab._checker import runaway
from gem_core import EnvSpec
spec = EnvSpec("test:Backtracks", "tests.checker.broken_envs:Backtracks")
texts = [("repetition", "bare", "(a+)+$")]
threading.Thread(target=runaway.send, args=(spec, 0, texts, 3600.0), daemon=True).start()
while not orphans._watcher.groups:
    time.sleep(0.01)
with orphans._lock:  # until the record is sent
    pass
print(runaway._worker._process.pid, flush=True)
"""
PUZZLES = """
from gem_envs._rg.trusted import _Worker
print(_Worker("time").process.pid, flush=True)
"""


@pytest.mark.parametrize("code", [CHECKER, PUZZLES], ids=["checker", "puzzles"])
def test_a_worker_ends_with_a_caller_that_is_killed(code):
    with Caller(code) as caller:
        assert len(caller.pids) == 1
        assert running(caller.pids[0])
        os.kill(caller.pids[0], signal.SIGSTOP)  # it does not see the end of its input
        caller.process.kill()
        assert caller.left() == []


AT_ONCE = """
import signal, subprocess
from pathlib import Path
from gem_core._util import orphans
def killed(pid, grace=0.0):
    print(pid, flush=True)
    if {stop}:
        while not (line := Path(f"/proc/{{pid}}/cmdline").read_bytes()) or b"announce.py" in line:
            time.sleep(0.001)  # it is empty while a program is being loaded
        os.kill(pid, signal.SIGSTOP)  # it does not see the end of its input
    os.kill(os.getpid(), signal.SIGKILL)
orphans.end_with_us = killed
"""
PLAIN = """
command, pipes = announced([sys.executable, "-c", SLEEP])
orphans.end_with_us(subprocess.Popen(command, pass_fds=pipes, start_new_session=True).pid)
"""
SERVER = """
import asyncio
from gem_bridges.openenv import _workers as workers
from gem_core import EnvSpec
from gem_core._workers import EnvRecipe
workers.END_SECONDS = 0.1
spec = EnvSpec("game:GuessTheNumber-v0-easy", "gem_envs._games:GuessTheNumber")
host = workers.WorkerHost("process", EnvRecipe(spec), 1, None)
asyncio.run(host._start_worker(0))
"""
WORKERS = """
import functools, gem_core
from gem_core.vector import _slices as slices
slices.GRACE = 0.1
gem_core.register("test:Hangs-v0", functools.partial(subprocess.run, ["sleep", "300"]))
gem_core.make_vec(["test:Hangs-v0"], backend="process")
"""
PROGRAM = """
from gem_envs.sandbox import open_sandbox
open_sandbox("process").run(SLEEP)
"""


@pytest.mark.parametrize(
    ("code", "stop"),
    [
        (PLAIN, False),
        (PLAIN, True),
        (CHECKER, True),
        (PUZZLES, True),
        (SERVER, False),
        (PROGRAM, False),
        (WORKERS, False),
    ],
    ids=["plain", "plain, stopped", "checker", "puzzles", "server", "program", "workers"],
)
def test_a_process_ends_whose_caller_is_killed_before_it_has_told_the_watcher(code, stop):
    if code is SERVER:
        pytest.importorskip("aiohttp", reason="needs the extra 'serve'")
    with Caller(AT_ONCE.format(stop=stop) + code) as caller:
        assert len(caller.pids) == 1
        assert caller.process.wait(60) == -signal.SIGKILL
        assert caller.left() == []
