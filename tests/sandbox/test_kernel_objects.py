"""Kernel objects that no limit counts are refused at level ``namespace``, and honest programs still run."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys

import pytest

from gem_envs.sandbox import ProgramLimits, _guest
from gem_envs.sandbox._guest import denied
from gem_envs.sandbox._guest.denied import ABSENT, CONDITIONAL, DENIED, NEWEST
from gem_envs.sandbox._namespace import Namespace
from gem_envs.sandbox._selftest.kernel_attacks import KERNEL_ATTACKS
from tests.sandbox.support import needs_namespace

LIMITS = ProgramLimits(wall_seconds=20, cpu_seconds=10, memory_bytes=128 * 2**20, processes=32)
ALLOWED, REFUSED, MISSING = "allowed", "refused", "missing"


@pytest.fixture(scope="module")
def sandbox():
    one = Namespace(workers=1)
    yield one
    one.close()


@needs_namespace
@pytest.mark.parametrize("name", KERNEL_ATTACKS)
def test_no_object_without_a_limit_can_be_made(sandbox, name):
    result = sandbox.run(KERNEL_ATTACKS[name], limits=LIMITS)
    assert "GOT THROUGH" not in result.stdout
    ran = result.stdout.startswith("0 ")
    refused = result.stderr.rstrip().rpartition("\n")[2].startswith(("PermissionError", "FileNotFoundError"))
    assert ran or refused, result  # the attack itself must not be at fault


HONEST = {
    "pool": "import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, 2]))",
    "executor": (
        "from concurrent.futures import ProcessPoolExecutor as P\nwith P(2) as p: print(*p.map(abs, [-1]))"
    ),
    "queue": (
        "import multiprocessing as m\nq = m.Queue()\np = m.Process(target=q.put, args=('x' * 200000,))\n"
        "p.start(); print(len(q.get())); p.join()"
    ),
    "locks": (
        "import multiprocessing as m\nm.Barrier(1).wait()\n"
        "s = m.BoundedSemaphore(2); s.acquire(); s.release()\n"
        "with m.Lock(), m.Condition(): e = m.Event(); e.set(); print(e.wait())"
    ),
    "shared values": (
        "import multiprocessing as m\nv, a = m.Value('i', 1), m.Array('d', 50000)\n"
        "def f(): v.value = 7; a[9] = 2.5\np = m.Process(target=f); p.start(); p.join(); print(v.value, a[9])"
    ),
    "shared memory": (
        "from multiprocessing.shared_memory import SharedMemory\ns = SharedMemory(create=True, size=10**6)\n"
        "s.buf[999999] = 7; t = SharedMemory(s.name); print(t.buf[999999]); t.close(); s.close(); s.unlink()"
    ),
    "pipe": "import multiprocessing as m\na, b = m.Pipe(); a.send({'x': 1}); print(b.recv())",
    "asyncio": (
        "import asyncio, sys\nasync def main():\n"
        "  p = await asyncio.create_subprocess_exec(sys.executable, '-c', 'print(3)', stdout=-1)\n"
        "  print((await p.communicate())[0], await asyncio.to_thread(abs, -4))\nasyncio.run(main())"
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as P\n"
        "with P(8) as p: print(sum(p.map(abs, range(99))))"
    ),
    "socket pair": (
        "import socket\na, b = socket.socketpair(); a.settimeout(1); a.sendall(b'x' * 50000)\n"
        "print(len(b.recv(50000, socket.MSG_WAITALL)))\n"
        "socket.send_fds(a, [b'q'], [0]); print(a.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 0)"
    ),
    "subprocess": (
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(input())'], input='in', "
        "capture_output=True, text=True).stdout)"
    ),
    "sqlite": (
        "import sqlite3\nc = sqlite3.connect('x.db'); c.execute('pragma journal_mode=wal')\n"
        "c.execute('create table t(a)')\n"
        "c.executemany('insert into t values(?)', [(i,) for i in range(999)])\n"
        "c.commit(); print(sqlite3.connect('x.db').execute('select sum(a) from t').fetchone())"
    ),
    "copies": (
        "import os, shutil\nopen('a', 'wb').write(b'x' * 300000); shutil.copy('a', 'b'); os.mkdir('d')\n"
        "shutil.copytree('d', 'e'); shutil.move('b', 'e/b'); print(os.path.getsize('e/b'))"
    ),
    "maps": (
        "import mmap\nm = mmap.mmap(-1, 13); m.write(b'Hello world!')\n"
        "p = mmap.mmap(-1, 10**6, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); p[-1] = 7\n"
        "open('f', 'wb').write(b'x' * 99999)\n"
        "with open('f', 'r+b') as f: m = mmap.mmap(f.fileno(), 0); m[0] = 65; m.close()\n"
        "print(open('f').read(2))"
    ),
    "devices": "print(open('/dev/zero', 'rb').read(3), len(open('/dev/urandom', 'rb').read(9)))",
    "file locks": (
        "import fcntl as k\nwith open('l', 'w') as f: k.lockf(f, k.LOCK_EX); k.flock(f, k.LOCK_EX)\n"
        "print('locked')"
    ),
    "alarms": (
        "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: print('rang'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.1); print(len(signal.sigpending()))"
    ),
    "polling": (
        "import select, os\nr, w = os.pipe(); e = select.epoll(); e.register(r)\n"
        "os.write(w, b'1'); print(e.poll(1))"
    ),
    "own limits": (
        "import resource as r\nr.setrlimit(r.RLIMIT_NOFILE, (20, 20)); print(r.prlimit(0, r.RLIMIT_NOFILE))"
    ),
}  # fmt: skip


@needs_namespace
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_runs(sandbox, name):
    result = sandbox.run(HONEST[name], limits=ProgramLimits(wall_seconds=30, processes=32))
    assert (result.ending, result.stderr) == ("ok", "")
    assert result.stdout


@needs_namespace
def test_numpy_and_pytest_run():
    pytest.importorskip("numpy")
    one = Namespace(workers=1, packages=("numpy", "pytest"))
    code = (
        "import numpy as n, pytest\na = n.random.default_rng(0).normal(size=(300, 300))\n"
        "print(n.allclose(n.linalg.inv(a) @ a, n.eye(300)))\n"
        "m = n.memmap('m', 'float64', 'w+', shape=1000); m[7] = 1; m.flush(); n.save('s.npy', a)\n"
        "open('test_x.py', 'w').write('def test(tmp_path, capfd): assert 1')\n"
        "print(int(pytest.main(['-q', 'test_x.py'])))"
    )
    result = one.run(code, limits=ProgramLimits(wall_seconds=60, cpu_seconds=30, processes=32))
    one.close()
    assert (result.ending, result.stdout.split()[0], result.stdout.split()[-1]) == ("ok", "True", "0")


# -- the filter itself, on both processors -----------------------------------------------------------------


def verdict(monkeypatch, machine: str, number: int, *arguments: int) -> str:
    """Return what the filter decides about a call, by running its program."""
    from gem_envs.sandbox._guest import kernel

    monkeypatch.setattr(platform, "machine", lambda: machine)
    audit = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    built = kernel._filter()
    assert built is not None
    data = struct.pack("<IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("HBBI", ctypes.string_at(built[1], len(built[1]))))
    at = value = 0
    while True:
        code, yes, no, constant = steps[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, constant)
        elif code == 0x54:
            value &= constant
        elif code == 0x06:
            return {0x7FFF0000: ALLOWED, 0x50001: REFUSED, 0x50026: MISSING}[constant]
        else:
            true = {
                0x15: value == constant, 0x25: value > constant, 0x35: value >= constant,
                0x45: value & constant,
            }[code]  # fmt: skip
            at += yes if true else no


@pytest.fixture(params=["x86_64", "aarch64"])
def decide(request, monkeypatch):
    """Return a function that decides about a call by name or number."""
    monkeypatch.setitem(sys.modules, "_guest", _guest)  # the name of the package in a guest
    monkeypatch.setitem(sys.modules, "_guest.denied", denied)
    column = 1 if request.param == "x86_64" else 2
    numbers = {row[0]: row[column] for row in (*DENIED, *ABSENT, *CONDITIONAL)}

    def decided(call: str | int, *arguments: int) -> str:
        number = numbers[call] if isinstance(call, str) else call
        return verdict(monkeypatch, request.param, number, *arguments)

    return decided


def test_the_filter_refuses_the_calls_of_its_lists(decide):
    assert {decide(name) for name, *_ in DENIED} == {REFUSED}
    names = [name for name, *_ in ABSENT if name != "inotify_init"]  # x86_64 alone has this one
    assert {decide(name) for name in names} == {MISSING}
    assert decide(NEWEST + 1) == MISSING
    assert decide(NEWEST) == ALLOWED


@pytest.mark.parametrize(
    ("call", "arguments", "wanted"),
    [
        ("mmap", (0, 2**20, 3, 0x22), ALLOWED),  # private
        ("mmap", (0, 2**20, 3, 0x01), ALLOWED),  # of a file
        ("mmap", (0, 4096, 3, 0x21), ALLOWED),
        ("mmap", (0, 4097, 3, 0x21), REFUSED),
        ("mmap", (0, 2**32, 3, 0x21), REFUSED),  # the lower half is 0
        ("mmap", (0, 2**20, 3, 0x8021), REFUSED),  # with MAP_POPULATE
        ("mmap", (0, 2**20, 3, 2**32 | 0x21), REFUSED),
        ("fcntl", (3, 1031, 2**20), REFUSED),
        ("fcntl", (3, 2**32 | 1031, 2**20), REFUSED),
        ("fcntl", (3, 1032), ALLOWED),
        ("fcntl", (3, 6), ALLOWED),
        ("setsockopt", (3, 1, 7), REFUSED),
        ("setsockopt", (3, 1, 8), REFUSED),
        ("setsockopt", (3, 1, 33), REFUSED),
        ("setsockopt", (3, 1, 20), ALLOWED),
        ("setsockopt", (3, 6, 7), ALLOWED),
        ("socketpair", (1, 1, 0), ALLOWED),
        ("socketpair", (30, 1, 0), REFUSED),
        ("prctl", (78, 1, 2**16), REFUSED),
        ("prctl", (41, 0), REFUSED),
        ("prctl", (15, 0), ALLOWED),
        ("prlimit64", (0, 7), ALLOWED),
        ("prlimit64", (1, 7), REFUSED),
        ("clone", (0x1200011,), ALLOWED),
        ("clone", (0x10000000,), REFUSED),
        ("clone", (0x00020000 | 0x11,), REFUSED),
    ],
)
def test_the_filter_reads_arguments(decide, call, arguments, wanted):
    assert decide(call, *arguments) == wanted
