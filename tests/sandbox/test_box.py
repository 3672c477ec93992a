"""A foreign program in its own namespaces: what it sees, what it reaches, and what it leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from gem_envs.sandbox import _box
from gem_envs.sandbox._box import Box, BoxEnd, BoxLimits, box_obstacle, program_folders
from gem_envs.sandbox._shell import File
from tests.sandbox.support import children, descriptors, settles

pytestmark = pytest.mark.skipif(bool(box_obstacle()), reason=box_obstacle() or "works")
PATH = "/usr/local/bin:/usr/bin:/bin"


def run(*command: str, **options) -> BoxEnd:
    async def main() -> BoxEnd:
        async with Box(command, {"PATH": PATH}, port=8123, **options) as box:
            return await box.wait()

    return asyncio.run(main())


def python(code: str, **options) -> BoxEnd:
    return run(sys.executable, "-c", code, **options)


def test_it_gets_files_input_and_variables_and_leaves_its_folder():
    script = (
        "cat; pwd; echo $HOME; cat ~/.settings; cat in/notes; stat -c %a in/run; readlink in/link; "
        "echo new > out; mkdir d; chmod 600 in/notes; ln -s out l; mkfifo p; rm in/gone"
    )
    files = {
        "app/in/notes": File(b"notes\n"),
        "app/in/run": File(b"", 0o755),
        "app/in/gone": File(b"x"),
        "app/in/link": File(target="notes"),
        "app/empty": File(folder=True),
        "home/.settings": File(b"mine\n"),
    }
    ended = run("bash", "-c", script, files=files, stdin="given\n")
    assert ended.output.splitlines() == ["given", "/app", "/home", "mine", "notes", "755", "notes"]
    assert ended.status == 0
    assert ended.files == {
        "in": File(folder=True, mode=0o755),
        "in/notes": File(b"notes\n", 0o600),
        "in/run": File(b"", 0o755),
        "in/link": File(target="notes", mode=0o777),
        "empty": File(folder=True, mode=0o755),
        "out": File(b"new\n"),
        "d": File(folder=True, mode=0o755),
        "l": File(target="out", mode=0o777),
        "p": File(other=True, mode=0o644),
    }


def test_the_port_is_served_by_the_caller_and_nothing_else_is_reached():
    code = (
        "import socket\n"
        "print(socket.create_connection(('127.0.0.1', 8123)).recv(10))\n"
        "for address in (('127.0.0.1', {port}), ('8.8.8.8', 53), ('::1', {port})):\n"
        "    try:\n"
        "        socket.create_connection(address, 2)\n"
        "        print('reached', address)\n"
        "    except OSError as error:\n"
        "        print(type(error).__name__)\n"
    )

    async def main() -> BoxEnd:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")
            writer.close()

        with socket.create_server(("127.0.0.1", 0)) as ours:
            port = ours.getsockname()[1]
            command = [sys.executable, "-c", code.format(port=port)]
            async with (
                Box(command, {"PATH": PATH}, port=8123) as box,
                await asyncio.start_server(greet, sock=box.listener),
            ):
                return await box.wait()

    lines = asyncio.run(main()).output.splitlines()
    assert lines[0] == "b'hello'"
    assert lines[1:] == ["ConnectionRefusedError", "OSError", "ConnectionRefusedError"]


@pytest.mark.parametrize(
    ("attack", "shown"),
    [
        ("open({secret!r}).read()", "No such file"),
        ("open('/etc/shadow')", "No such file"),
        ("open('/usr/bin/planted', 'w')", "Read-only"),
        ("open('/etc/passwd', 'a')", "Permission denied"),
        ("os.kill({pid}, 0)", "No such process"),
        ("os.kill(1, 9)", "not permitted"),
        ("open('/proc/1/environ').read()", "Permission denied"),
        ("os.listdir('/proc/1/fd')", "Permission denied"),
        ("open('/proc/1/root/program/x', 'w')", "Permission denied"),
        ("os.setuid(0)", "not permitted|Invalid argument"),
        ("socket.socket(17, socket.SOCK_RAW, 3)", "not permitted"),
        ("socket.socket(16, socket.SOCK_RAW, 12)", "not permitted"),
        ("socket.socket(40, socket.SOCK_STREAM)", "not permitted"),
        (
            "os.unshare(0x10000000) if hasattr(os, 'unshare') else libc('unshare', 0x10000000)",
            "not permitted",
        ),
        ("libc('mount', b'tmpfs', b'/tmp', b'tmpfs', 0, None)", "not permitted"),
        ("open('big', 'wb').write(bytes(40 << 20))", "No space|too large"),
        ("[open(f'f{{i}}', 'w').close() for i in range(3000)]", "No space"),
        ("bytearray(600 << 20)", "MemoryError"),
        ("[os.fork() or time.sleep(60) for i in range(200)]", "temporarily unavailable"),
    ],
)
def test_attacks_fail(attack, shown, tmp_path):
    code = (
        "import ctypes, os, socket, time\n"
        "def libc(name, *arguments):\n"
        "    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:\n"
        "        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n"
    )
    with tempfile.NamedTemporaryFile("w") as secret:
        filled = attack.format(secret=secret.name, pid=os.getpid())
        limits = BoxLimits(memory_bytes=500 << 20, disk_bytes=30 << 20, files=2000, processes=60)
        ended = python(code + filled + "\nprint('DONE')", limits=limits)
    assert any(text in ended.output for text in shown.split("|")), ended.output
    assert "DONE" not in ended.output
    assert ended.status != 0


def test_the_attacks_would_succeed_outside(tmp_path):
    """So the test above shows the box and not a machine on which nothing works."""
    path = tmp_path / "secret"
    path.write_text("x")
    assert path.read_text() == "x"
    os.kill(os.getpid(), 0)
    assert run("true").status == 0
    assert python("bytearray(200 << 20); open('f', 'w').write('x' * 1000); print('DONE')").output == "DONE"


def test_what_it_leaves_running_ends_with_it():
    before, open_before = len(children(os.getpid())), descriptors()
    code = "(setsid sleep 1000 &) ; (trap '' TERM; sleep 1000 &) ; disown -a; exit 7"
    assert run("bash", "-c", code).status == 7
    assert settles(lambda: len(children(os.getpid())) <= before)
    assert descriptors() <= open_before


def test_it_is_asked_to_end_and_then_killed():
    async def main(trap: str) -> BoxEnd:
        command = ["bash", "-c", f"trap '{trap}' TERM; echo ready > f; while :; do sleep 0.1; done"]
        async with Box(command, {"PATH": PATH}, port=8123, grace=1.0) as box:
            waiting = asyncio.ensure_future(box.wait())
            await asyncio.sleep(1.5)
            assert not waiting.done()
            box.end()
            return await waiting

    polite = asyncio.run(main("echo bye > g; exit 4"))
    assert (polite.status, polite.files["g"].data) == (4, b"bye\n")
    stubborn = asyncio.run(main(""))
    assert (stubborn.status, stubborn.files["f"].data) == (-9, b"ready\n")


def test_it_ends_with_its_caller():
    code = (
        "import asyncio, sys\n"
        "from gem_envs.sandbox._box import Box\n"
        "async def main():\n"
        "    async with Box(['sleep', '1000'], {'PATH': '/usr/bin:/bin'}, port=8123) as box:\n"
        "        print('started', flush=True)\n"
        "        await box.wait()\n"
        "asyncio.run(main())\n"
    )

    async def main() -> list[int]:
        caller = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
        )
        assert caller.stdout is not None
        assert await caller.stdout.readline() == b"started\n"
        found = children(caller.pid)
        caller.send_signal(signal.SIGKILL)
        await caller.wait()
        return found

    found = asyncio.run(main())
    assert len(found) >= 2
    assert settles(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found))


@pytest.mark.parametrize(
    "mess",
    [
        "head -c 5000000 /dev/zero > a; head -c 5000000 /dev/zero > b; head -c 5000000 /dev/zero > c",
        "for i in $(seq 3000); do : > $i; done",
        "for i in $(seq 60); do d=$(printf x%.0s $(seq 200)); mkdir $d && cd $d; done",
    ],
)
def test_a_folder_that_cannot_be_read_is_none(mess):
    ended = run("bash", "-c", mess, limits=BoxLimits(result_bytes=2 << 20))
    assert ended.status == 0, ended.output
    assert ended.files is None or all(file.other or len(file.data) < 2 << 20 for file in ended.files.values())


def test_names_that_are_no_utf_8_and_unreadable_files_come_back():
    ended = run(
        "bash", "-c", r"printf x > $'\xff'; printf y > no; chmod 0 no; mkdir z; printf q > z/q; chmod 0 z"
    )
    assert ended.files is not None
    assert {os.fsencode(name): file.data for name, file in ended.files.items() if not file.folder} == {
        b"\xff": b"x",
        b"no": b"y",
        b"z/q": b"q",
    }


def test_it_reads_its_script_and_what_is_added_but_not_their_neighbors(tmp_path):
    for name in ("agent.py", "secret.txt", "real.py", "lib/tool.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(
            "import os, sys\nprint(sorted(os.listdir(os.path.dirname(__file__))))\n"
            f"sys.path.append({str(tmp_path / 'lib')!r})\nimport tool\n"
        )
    (tmp_path / "link.py").symlink_to("real.py")
    (tmp_path / "lib" / "tool.py").write_text("print('tool')\n")
    reads = [str(tmp_path / "lib")]
    for script, seen in (("agent.py", ["agent.py", "lib"]), ("link.py", ["lib", "link.py"])):
        ended = run(sys.executable, str(tmp_path / script), reads=reads)
        assert ended.output.splitlines() == [str(seen), "tool"]
    assert "No module named 'tool'" in run(sys.executable, str(tmp_path / "agent.py")).output


def test_it_may_open_terminals_but_not_without_limit():
    code = (
        "import os, pty\n"
        "pid, terminal = pty.fork()\n"
        "if not pid:\n    os.execvp('tty', ['tty'])\n"
        "os.waitpid(pid, 0)\nprint(os.read(terminal, 100).strip())\n"
        "[pty.openpty() for _ in range(100)]\n"
    )
    ended = python(code)
    assert "b'/dev/pts/0'" in ended.output
    assert "OSError: out of pty devices" in ended.output


def test_it_ignores_no_signals():
    """Neither those that Python ignores, nor those that this process ignores, as one behind nohup does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _, mask = run("grep", "SigIgn", "/proc/self/status").output.split()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [number for number in signal.valid_signals() if int(mask, 16) >> number - 1 & 1] == []


def test_a_program_that_is_missing():
    ended = run("no-such-program-here")
    assert ended.status == 127
    assert "cannot be started" in ended.output


def test_the_folders_of_programs(tmp_path):
    package = tmp_path / "lib" / "node_modules" / "agent" / "bin"
    package.mkdir(parents=True)
    (package / "agent.js").write_text("#!/usr/bin/env bash\n")
    (package / "agent.js").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "agent").symlink_to(package / "agent.js")
    found = program_folders("agent", f"{tmp_path}/bin:{PATH}")
    assert str(tmp_path / "lib" / "node_modules") in found
    assert str(tmp_path) not in found
    assert os.path.realpath("/usr/bin") in [os.path.realpath(folder) for folder in found]
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    (venv / "bin" / "agent").write_text("#!/bin/sh\n")
    (venv / "bin" / "agent").chmod(0o755)
    assert str(venv) in program_folders("agent", str(venv / "bin"))
    assert program_folders("no-such-program-here", PATH) == []


def test_without_ids_to_map_as_for_most_users(monkeypatch):
    monkeypatch.setattr(_box, "map_ids", lambda process: 0)
    leak = "for one in /proc/1/fd/*; do timeout 1 cat $one > /dev/null && echo LEAK; done"
    ended = run("bash", "-c", f"id -u; id -un; cat /proc/1/environ; {leak}; kill -9 1; echo x > f")
    assert ended.output.splitlines()[:2] == ["1000", "agent"]
    assert ended.output.count("Permission denied") > 5
    assert "LEAK" not in ended.output
    assert ended.files == {"f": File(b"x\n")}


def test_a_busy_machine_is_no_obstacle(monkeypatch):
    tries = []

    def late(self):
        tries.append(self)
        if len(tries) < 3:
            raise TimeoutError
        return handshake(self)

    handshake = Box._handshake
    monkeypatch.setattr(Box, "_handshake", late)
    assert box_obstacle.__wrapped__() == ""
    assert len(tries) == 3

    def refuse(self):
        raise OSError("no namespaces")

    monkeypatch.setattr(Box, "_handshake", refuse)
    assert box_obstacle.__wrapped__() == "no namespaces"
