from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gem_core.errors import MissingDependency, SandboxError
from gem_envs.sandbox import ProgramLimits, _fork_server
from gem_envs.sandbox._fork_server import ForkServer
from gem_envs.sandbox._namespace import Namespace
from gem_envs.sandbox._selftest import suite
from gem_envs.sandbox._selftest.attacks import ATTACKS
from tests.sandbox.support import children, descriptors, name, needs_namespace, settles

pytestmark = needs_namespace
SHORT = ProgramLimits(
    wall_seconds=20,
    cpu_seconds=1,
    memory_bytes=256 * 2**20,
    file_bytes=2**20,
    output_bytes=1000,
    processes=16,
)


@pytest.fixture(scope="module")
def sandbox():
    with_two = Namespace(workers=2)
    yield with_two
    with_two.close()


def test_output_and_input(sandbox):
    result = sandbox.run("import sys\nprint(input())\nprint('w', file=sys.stderr)", stdin="hällo\n")
    assert result[:4] == ("hällo\n", "w\n", "ok", 0)
    assert (result.cut, result.level) == (False, "namespace")
    assert sandbox.run("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


@pytest.mark.parametrize(
    ("code", "ending", "exit_code"),
    [
        ("raise SystemExit(3)", "failed", 3),
        ("raise SystemExit('why')", "failed", 1),
        ("1/0", "failed", 1),
        ("def f(:", "failed", 1),
        ("import os; os._exit(7)", "failed", 7),
        ("import ctypes; ctypes.string_at(0)", "killed", -11),
        ("", "ok", 0),
        ("while True: pass", "timeout", -9),
        ("\ud800 = 1", "failed", 1),
    ],
)
def test_endings(sandbox, code, ending, exit_code):
    result = sandbox.run(code, limits=SHORT)
    assert (result.ending, result.exit_code) == (ending, exit_code)


def test_the_traceback_covers_the_program_alone(sandbox):
    error = sandbox.run("def f():\n    return 1 / 0\nf()").stderr
    assert error.startswith('Traceback (most recent call last):\n  File "main.py", line 3, in <module>\n')
    assert "    return 1 / 0\n" in error
    assert "guest" not in error


def test_a_program_is_a_main_module(sandbox):
    code = (
        "import dataclasses, pickle, __main__\n"
        "@dataclasses.dataclass\nclass P:\n    x: int\n"
        "print(__name__, pickle.loads(pickle.dumps(P(3))), __main__.P is P)"
    )
    assert sandbox.run(code).stdout == "__main__ P(x=3) True\n"


def test_output_before_a_timeout_is_kept(sandbox):
    result = sandbox.run(
        "print('before')\nimport time\ntime.sleep(60)", limits=ProgramLimits(wall_seconds=0.5)
    )
    assert (result.stdout, result.ending) == ("before\n", "timeout")


def test_output_beyond_the_limit_is_cut(sandbox):
    result = sandbox.run("print('x' * 5000)", limits=SHORT)
    assert (len(result.stdout), result.cut) == (1000, True)


def test_every_character_is_returned(sandbox):
    text = "".join(chr(code) for code in range(32, 0x110000, 97) if not 0xD800 <= code < 0xE000)
    assert sandbox.run(f"print({text!r})").stdout == text + "\n"


def test_files_go_in_and_come_out(sandbox):
    code = "open('out/b.bin', 'wb').write(open('in/a.txt', 'rb').read()[::-1])"
    result = sandbox.run(
        f"import os\nos.mkdir('out')\n{code}", files={"in/a.txt": b"abc\n\0"}, fetch=["out/b.bin", "missing"]
    )
    assert dict(result.files) == {"out/b.bin": b"\0\ncba"}
    for path in ("/etc/x", "../x", "a/../../x", ""):
        with pytest.raises(SandboxError, match="expected a relative path"):
            sandbox.run("", files={path: b""})


def test_programs_do_not_see_each_other(sandbox):
    sandbox.run("import os; open('left', 'w').close(); os.x = 1")
    for _ in range(4):
        seen = sandbox.run(
            "import os; print(os.listdir('.'), os.listdir('/tmp'), hasattr(os, 'x'), os.getpid())"
        )
        assert seen.stdout == "[] [] False 1\n"


def test_what_a_program_starts_ends_with_it(sandbox):
    code = (
        "import ctypes, os, time\nctypes.CDLL(None).prctl(15, b'left-behind')  # PR_SET_NAME\n"
        "for _ in range(3):\n  if os.fork() == 0:\n    os.setsid(); time.sleep(600)\n"
        "time.sleep(3); print('end')"
    )

    def left() -> int:
        return sum(name(child) == "left-behind" for pid in sandbox.processes() for child in children(pid))

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(sandbox.run, code)
        assert settles(lambda: left() == 4)
        assert result.result().stdout == "end\n"
    assert settles(lambda: left() == 0)


def test_a_session_remembers_and_forgets_when_it_is_stopped(sandbox):
    session = sandbox.session()
    assert not session.alive
    assert session.run("x = 1\nopen('kept', 'w').write('y')").ending == "ok"
    assert session.run("1/0").ending == "failed"
    assert session.run("x += 1; print(x, open('kept').read(), input())", stdin="z").stdout == "2 y z\n"
    assert session.run("raise SystemExit(4)").exit_code == 4
    assert session.run("print(x)").stdout == "2\n"
    assert (
        session.run("import time; time.sleep(60)", limits=ProgramLimits(wall_seconds=0.3)).ending == "timeout"
    )
    assert session.run("print(x)").ending == "failed"
    assert session.run("import os; os._exit(3)").exit_code == 3
    assert session.run("print(1)").stdout == "1\n"
    session.close()


def test_the_cpu_limit_of_a_session_is_one_of_each_program(sandbox):
    session = sandbox.session()
    burn = "import time\nend = time.process_time() + 0.7\nwhile time.process_time() < end: pass"
    assert [session.run(burn, limits=SHORT).ending for _ in range(3)] == ["ok"] * 3
    session.close()


def test_a_program_cannot_manipulate_the_caller(sandbox):
    code = (
        "import os, stat\n"
        "for number in range(3, 64):\n"
        "  try:\n"
        "    if stat.S_ISSOCK(os.fstat(number).st_mode): os.write(number, {message!r}); os._exit(5)\n"
        "  except OSError: pass\n"
        "print('no socket')"
    )
    for message in (b"{", b'{"exit": "0"}', b'{"exit": 10000000}', b"[" * 60000, b"\xff"):
        assert sandbox.run(code.format(message=message)).ending in ("killed", "failed")
    assert sandbox.run("print(1)").stdout == "1\n"


def test_a_killed_fork_server_is_replaced(sandbox):
    session = sandbox.session()
    session.run("x = 1")
    results = []
    code = "import os, time; os.fork(); time.sleep(30)"
    running = threading.Thread(target=lambda: results.append(sandbox.run(code)))
    running.start()
    # The program runs as soon as a process other than a server (the first below its launcher) has a child.
    assert settles(lambda: any(children(c) for pid in sandbox.processes() for c in children(pid)[1:]))
    for pid in sandbox.processes():
        os.kill(pid, signal.SIGKILL)
    running.join(30)
    assert results[0].ending == "killed"
    assert "was killed" in results[0].stderr
    assert [sandbox.run("print(1)").stdout for _ in range(4)] == ["1\n"] * 4
    assert session.run("print(2)").ending in ("killed", "ok")
    assert session.run("print(2)").stdout == "2\n"
    session.close()


def test_many_callers_at_once(sandbox):
    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(lambda n: sandbox.run(f"print({n})").stdout, range(128)))
    assert found == [f"{n}\n" for n in range(128)]


def test_runs_leave_nothing_behind(sandbox):
    for _ in range(4):
        sandbox.run("1")
    before = descriptors()
    for number in range(int(os.environ.get("GEM_CORE_LEAK_RUNS", "150"))):
        assert sandbox.run("open('file', 'w').write('x')\nprint(1)").stdout == "1\n", number
    session = sandbox.session()
    session.run("1")
    session.close()
    assert descriptors() == before
    below = [children(pid) for pid in sandbox.processes()]
    assert settles(lambda: sum(len(children(pid)) for pid in sandbox.processes()) <= 2 * (1 + 2)), below


def test_closing_ends_everything():
    sandbox = Namespace(workers=1)
    session = sandbox.session()
    session.run("import os\nos.fork()")
    (pid,) = sandbox.processes()
    below = children(pid)
    assert below
    sandbox.close()
    sandbox.close()
    session.close()
    assert settles(lambda: not any(Path(f"/proc/{child}").exists() for child in below))
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run("1")


def test_nothing_outlives_a_caller_that_was_killed():
    code = (
        "from gem_envs.sandbox._namespace import Namespace\n"
        "n = Namespace(workers=1); n.session().run('1'); print(n.processes()[0], flush=True)\n"
        "import time; time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as caller:
        pid = int(caller.stdout.readline())
        below = children(pid)
        assert below
        caller.kill()
    assert settles(lambda: not any(Path(f"/proc/{child}").exists() for child in [pid, *below]))


def test_a_forked_child_has_fork_servers_of_its_own(sandbox):
    sandbox.run("1")
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if sandbox.run("print(2)").stdout == "2\n" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sandbox.run("print(3)").stdout == "3\n"


def test_packages_are_those_that_are_allowed():
    pytest.importorskip("numpy")
    sandbox = Namespace(workers=1, packages=("numpy",))
    assert sandbox.run("import numpy; print(numpy.arange(4).sum())").stdout == "6\n"
    assert "ModuleNotFoundError" in sandbox.run("import hypothesis").stderr
    assert "Read-only" in sandbox.run("open('/packages/numpy/x', 'w')").stderr
    sandbox.close()
    with pytest.raises(MissingDependency, match="pip install no-such-package-here"):
        Namespace(packages=("no-such-package-here",))


@pytest.mark.long
@pytest.mark.once
def test_without_ids_to_map_as_for_most_users(monkeypatch):
    monkeypatch.setattr(_fork_server, "map_ids", lambda process: 0)
    sandbox = Namespace(workers=1)
    held = "[line for line in open('/proc/self/status')]"
    code = "import os\nprint(os.getuid(), os.getgid())\nopen('mine', 'w').close()\nos.setuid(0)"
    result = sandbox.run(code)
    assert result.stdout == "1000 1000\n"
    assert "Invalid argument" in result.stderr
    assert "FileNotFoundError" in sandbox.run(held).stderr
    assert "Read-only" in sandbox.run("open('/usr/x', 'w')").stderr
    names = {attack.name for attack in ATTACKS} - {"fork bomb"}  # the limit does not apply to root
    monkeypatch.setattr(suite, "ATTACKS", [attack for attack in ATTACKS if attack.name in names])
    monkeypatch.setattr(suite, "LATE_SECONDS", 0.3)
    outcomes = suite.attack_level("namespace", sandbox=sandbox)
    assert {o.attack: o.evidence for o in outcomes if o.verdict != "blocked"} == {}
    sandbox.close()


def test_a_fork_server_that_cannot_be_set_up_says_why(monkeypatch):
    broken = Namespace(workers=1)
    monkeypatch.setitem(broken._config, "mount_point", "/no/such/folder")
    broken.close()
    with pytest.raises(SandboxError, match="not available on this machine: FileNotFoundError"):
        ForkServer(broken._config)


@pytest.mark.parametrize("moment", ["while it runs", "with its answer"])
def test_a_session_whose_caller_was_interrupted_is_over(sandbox, moment, monkeypatch):
    """A signal handler that raises, as Ctrl-C does and the time limits of trainers for rewards."""

    def interrupt(*_):
        raise TimeoutError("the caller has no more time")

    session = sandbox.session()
    assert session.run("x = 1").ending == "ok"
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        if moment == "while it runs":
            signal.setitimer(signal.ITIMER_REAL, 0.3)
        else:
            monkeypatch.setattr("gem_envs.sandbox._exchange.head", interrupt)
        with pytest.raises(TimeoutError, match="no more time"):
            session.run("import time; time.sleep(1.5); print('second')")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        monkeypatch.undo()
    assert not session.alive
    for word in ("third", "fourth", "fifth"):
        assert session.run(f"print({word!r})").stdout == f"{word}\n"
    assert session.run("print(x)").ending == "failed"  # a new process, as after a program that was stopped
    session.close()
