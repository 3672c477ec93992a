from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs.sandbox import ProgramLimits, open_sandbox
from gem_envs.sandbox._process import Process

SHORT = ProgramLimits(
    wall_seconds=10, cpu_seconds=1, memory_bytes=256 * 2**20, file_bytes=2**20, output_bytes=1000
)


def run(code, *, packages=False, **kwargs):
    return Process(packages=packages).run(code, limits=kwargs.pop("limits", SHORT), **kwargs)


def test_output_and_input():
    result = run("import sys\nprint(input())\nprint('w', file=sys.stderr)", stdin="hällo\n")
    assert result[:4] == ("hällo\n", "w\n", "ok", 0)
    assert (result.cut, result.level) == (False, "process")


def test_standard_input_is_empty_by_default():
    assert run("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


@pytest.mark.parametrize(
    ("code", "ending", "exit_code"),
    [
        ("raise SystemExit(3)", "failed", 3),
        ("1/0", "failed", 1),
        ("import os; os.abort()", "killed", -6),
        ("", "ok", 0),
    ],
)
def test_endings(code, ending, exit_code):
    result = run(code)
    assert (result.ending, result.exit_code) == (ending, exit_code)


def test_burning_the_cpu_is_stopped():
    assert run("while True: pass").ending == "timeout"


def test_sleeping_is_stopped_on_the_clock():
    result = run("import time; time.sleep(60)", limits=ProgramLimits(wall_seconds=0.5))
    assert result.ending == "timeout"
    assert result.seconds < 30


def test_catching_the_signal_does_not_help():
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert run(code).ending == "timeout"


def test_memory_is_limited():
    result = run("x = bytearray(2**30)")
    assert result.ending == "failed"
    assert "MemoryError" in result.stderr


def test_a_flood_is_cut():
    result = run("while True: print('x' * 1000)")
    assert len(result.stdout) == 1000
    assert result.cut
    assert result.ending != "ok"


def test_large_files_cannot_be_written():
    assert run("open('a', 'wb').write(b'x' * 2**22)").ending == "failed"


def test_nothing_of_the_caller_is_inherited(monkeypatch):
    monkeypatch.setenv("GEM_TEST_SECRET", "x")
    with tempfile.TemporaryFile() as secret:
        os.set_inheritable(secret.fileno(), True)
        code = (
            "import os\n"
            "print('GEM_TEST_SECRET' in os.environ, sorted(int(f) for f in os.listdir('/proc/self/fd')))"
        )
        found = run(code).stdout
    assert found.startswith("False [0, 1, 2, 3]")  # 3 belongs to the listing itself


def test_the_folder_is_private_and_removed_afterwards():
    result = run("import os\nopen('a', 'w').write('b')\nprint(os.getcwd(), os.listdir())")
    folder = result.stdout.split()[0]
    assert not Path(folder).exists()
    assert folder != os.getcwd()


DEEP = """import os
for _ in range(3000):
    os.mkdir("a")
    os.chdir("a")
open("file", "w").close()
os.chdir("/")
"""


@pytest.mark.parametrize("level", ["process", "none"])
def test_folders_of_any_depth_are_removed_afterwards(level, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert open_sandbox(level).run(DEEP).ending == "ok"
    assert list(tmp_path.iterdir()) == []


def test_what_a_link_points_to_stays_and_what_was_made_unreadable_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "runs"))
    outside = tmp_path / "outside"
    for folder in (tmp_path / "runs", outside / "inner"):
        folder.mkdir(parents=True)
    (outside / "file").write_text("mine")
    code = f"""import os
os.makedirs("a/b/c")
os.symlink({str(outside)!r}, "a/b/link")
os.symlink({str(outside / "file")!r}, "a/file")
os.chmod("a/b", 0)
"""
    assert run(code).ending == "ok"
    assert list((tmp_path / "runs").iterdir()) == []
    assert (outside / "file").read_text() == "mine"
    assert (outside / "inner").stat().st_mode & 0o777 != 0


def test_circular_links_are_not_files():
    result = run("import os; os.symlink('out', 'out')", fetch=["out/x"])
    assert (result.ending, result.files) == ("ok", {})


def test_a_program_may_remove_the_file_that_takes_its_output():
    assert run("import os; print(1); os.unlink('../out')")[:3] == ("1\n", "", "ok")


def test_site_packages_are_there_only_on_request():
    assert run("import numpy").ending == "failed"
    large = ProgramLimits(wall_seconds=60, cpu_seconds=30, memory_bytes=4 * 2**30)
    assert run("import numpy", packages=True, limits=large).ending == "ok"


def test_children_are_killed_with_the_program():
    code = "import os, time\nif not os.fork():\n    time.sleep(300)\nprint(os.getpgid(0))"
    group = int(run(code).stdout)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        listed = subprocess.run(["ps", "-e", "-o", "pgid=,stat="], capture_output=True, text=True, check=True)
        alive = [
            line for line in listed.stdout.splitlines() if line.split()[0] == str(group) and "Z" not in line
        ]
        if not alive:
            return
        time.sleep(0.05)
    pytest.fail(f"the group {group} is still there: {alive}")


def test_any_thread_may_run_a_program():
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(int(run(f"print({n})").stdout))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(8))


@pytest.mark.parametrize("code", ["\x00", "\ud800", "# " + "x" * 10_000_000, "print('\U0001f600')"])
def test_any_text_is_a_program(code):
    assert run(code).ending in ("ok", "failed")


@pytest.mark.parametrize(
    "kwargs",
    [
        {"wall_seconds": 0},
        {"wall_seconds": float("inf")},
        {"memory_bytes": -1},
        {"memory_bytes": 1e9},
        {"open_files": "64"},
        {"cpu_seconds": "1"},
        {"cpu_seconds": float("nan")},
        {"processes": True},
    ],
)
def test_invalid_limits_are_rejected(kwargs):
    with pytest.raises(ConfigError, match=next(iter(kwargs))):
        ProgramLimits(**kwargs)


@pytest.mark.parametrize("code", ["def f():\n    return 1 / 0\n\nf()", "x = = 1", "raise ValueError('no')"])
def test_a_traceback_shows_the_program_and_nothing_of_this_machine(code):
    found = run(code).stderr
    assert "Error: " in found
    assert 'File "main.py"' in found or "line 1" in found
    assert "_child.py" not in found
    assert str(Path(gem_core.__file__).parent) not in found


def test_a_program_can_end_with_exit_or_quit():
    assert run("print(1); exit()").ending == "ok"
    assert run("quit(3)").exit_code == 3


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes in /proc")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_and_what_it_started_end_with_their_caller(tmp_path, end):
    """The programs run in threads of a caller and of its forked child, which inherits its descriptors."""
    caller = f"""
import os, threading, time
from gem_envs.sandbox import ProgramLimits
from gem_envs.sandbox._process import Process
def run(name):
    code = '''import os, subprocess, time
inner = subprocess.Popen(["sleep", "300"])
open({str(tmp_path)!r} + "/new-" + NAME, "w").write(f"{{os.getpid()}} {{inner.pid}}")
os.rename({str(tmp_path)!r} + "/new-" + NAME, {str(tmp_path)!r} + "/" + NAME)
time.sleep(300)'''.replace("NAME", repr(name))
    Process().run(code, limits=ProgramLimits(wall_seconds=300))
threading.Thread(target=run, args=("one",)).start()
time.sleep(0.2)
if not os.fork():
    run("two")
run("three")
"""
    process = subprocess.Popen([sys.executable, "-c", caller], start_new_session=True)
    try:
        names = ("one", "two", "three")
        wait_for(lambda: all((tmp_path / name).exists() for name in names))
        pids = [int(word) for name in names for word in (tmp_path / name).read_text().split()]
        assert len(pids) == 6
        assert all(map(running, pids))
        os.killpg(process.pid, end)
        process.wait()
        wait_for(lambda: not any(map(running, pids)))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def running(pid):
    """Return whether a process runs; one that nobody reaps has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
