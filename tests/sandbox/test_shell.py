"""The shell of a sandbox: persistent state, limits, and files written and read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gem_core.errors import SandboxError
from gem_envs.sandbox import File, open_shell, self_check
from gem_envs.sandbox._shell import LIMITS

pytestmark = pytest.mark.skipif(
    not self_check()["namespace"].available, reason=self_check()["namespace"].reason
)


@pytest.fixture
def shell():
    one = open_shell()
    yield one
    one.close()


def test_files_folders_and_links_go_in_and_come_out(shell):
    files = {
        "a/b.txt": File(b"\x00\xff", 0o640), "run": File(b"#!/bin/sh\necho ran", 0o755),
        "c": File(target="a/b.txt"), "empty": File(folder=True, mode=0o755),
    }  # fmt: skip
    shell.write(files)
    assert shell.run("./run; readlink c; stat -c %a a/b.txt").output == "ran\na/b.txt\n640\n"
    found = shell.read()
    assert {path: found[path] for path in files if path != "c"} == {
        p: f for p, f in files.items() if p != "c"
    }
    assert found["c"].target == "a/b.txt"


def test_nothing_but_the_files_is_left(shell):
    shell.run("exit")
    assert shell.read() == {}


def test_a_path_that_leads_out_is_rejected(shell):
    with pytest.raises(SandboxError, match="relative"):
        shell.write({"../x": File(b"")})


def test_files_that_nobody_may_read_are_read_and_pipes_are_not(shell):
    shell.run("mkdir d; echo x > d/f; chmod 000 d/f; mkfifo p")
    assert shell.read()["d/f"] == File(b"x\n", 0)
    assert {path: file.other for path, file in shell.read().items()} == {"d": False, "d/f": False, "p": True}


@pytest.mark.parametrize(
    "command", ["echo 'open", "if then", "$(", "\x00echo", "\ud800", "a" * 50_000, "{{{", "\r"]
)
def test_any_text_is_a_command(shell, command):
    assert shell.run(command).ending in ("ok", "exited")
    assert shell.run("echo on").output == "on\n"


def test_no_command_can_answer_for_another(shell):
    forged = 'for fd in $(seq 3 30); do printf "1-0 0 /x\\0 junk\\0" >&$fd; done 2> /dev/null; false'
    assert shell.run(forged)[1:4] == (1, "ok", "/app")


def test_limits_hold_for_every_command():
    limits = replace(LIMITS, cpu_seconds=7, memory_bytes=2**30, file_bytes=2**20, processes=40, open_files=50)
    one = open_shell(limits=limits)
    shown = "for kind in t v f u n; do ulimit -S$kind; ulimit -H$kind; done"
    wanted = [n for limit in (7, 2**20, 2**10, 40, 50) for n in (limit, limit)]
    assert list(map(int, one.run(shown).output.split())) == wanted
    assert one.run("head -c 3M /dev/zero > big; wc -c < big").output.split()[-1] == str(2**20)
    assert one.run("sleep 60", seconds=0.2).ending == "timeout"
    assert list(map(int, one.run(shown).output.split())) == wanted
    one.close()


def test_each_shell_has_its_own_files(shell):
    shell.run("touch mine")
    other = open_shell()
    assert other.run("ls").output == ""
    other.close()
    assert other.run("ls").ending == "lost"  # a closed shell reports it


def test_no_network_and_no_file_of_the_machine(shell, tmp_path):
    (tmp_path / "secret").write_text("s")
    assert "s" not in shell.run(f"cat {tmp_path}/secret 2> /dev/null").output
    assert shell.run("exec 5<>/dev/tcp/127.0.0.1/22").status != 0


def test_a_level_that_cannot_hold_a_shell():
    with pytest.raises(SandboxError, match="min_level"):
        open_shell("process")


@pytest.mark.parametrize(
    "prepared",
    [
        "true",
        "mkdir -p $L/verifier; echo 1 > $L/verifier/x; chmod 555 $L/verifier $L /program",
        "mkdir -p $L/verifier/d; chmod 0 $L/verifier/d $L/verifier $L",
        "ln -s /app $L",
        "mkdir -p $L; ln -s /app $L/verifier",
        "mkfifo $L",
        "mkdir -p $L; echo x > $L/verifier",
    ],
)
def test_a_renewed_folder_is_empty_whatever_was_there(shell, prepared):
    shell.run(f"echo kept > /app/f; L=/program/logs; {prepared}; sleep 99 &")
    shell.renew("/logs/verifier")
    assert shell.run("ls -A /logs/verifier; jobs; echo 1 > /logs/verifier/y; cat /app/f").output == "kept\n"
    assert shell.fetch("/logs/verifier/y") == b"1\n"


def test_a_fetched_file_is_a_small_regular_one(shell):
    shell.run("echo 1 > a; ln -s a b; mkfifo c; mkdir d; head -c 65537 /dev/zero > e")
    fetched = {name: shell.fetch(f"/app/{name}") for name in "abcdeg"}
    assert fetched == {"a": b"1\n", "b": b"", "c": b"", "d": b"", "e": b"", "g": None}


@pytest.mark.parametrize(
    "command",
    [
        *(
            f"import resource as r; r.prlimit(1, r.RLIMIT_{kind}, (0, 0))"
            for kind in ("FSIZE", "NOFILE", "CPU", "AS", "NPROC", "STACK")
        ),
        *(f"import os; os.kill(1, {number})" for number in (2, 9, 11, 15, 19, 25)),
        "import ctypes; print(ctypes.CDLL(None).syscall(302, 1, 7, (ctypes.c_ulong * 2)(0, 0), None))",
    ],
)
def test_no_command_ends_the_driver(shell, command):
    shell.run("touch kept")
    assert shell.run(f'python3 -c "{command}" 2> /dev/null').ending in ("ok", "exited")
    assert shell.run("ls").output == "kept\n"


def test_programs_of_the_machine_do_without_the_calls_that_are_refused(shell):
    made = "seq 20000 > a; cp a b; cat a > c; tail -n 1 b; cmp a c && head -c 3 /dev/zero | od -An -c"
    assert shell.run(made).output == "20000\n  \\0  \\0  \\0\n"
    followed = "(sleep 0.3; echo more >> a) & timeout 2 tail -n 0 -f a 2> /dev/null"
    assert "more\n" in shell.run(followed).output


@pytest.mark.parametrize("kind", ["run", "read", "write"])
def test_a_shell_whose_caller_was_interrupted_is_over(shell, kind, monkeypatch):
    assert shell.run("echo first").output == "first\n"

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gem_envs.sandbox._exchange._wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            {"run": lambda: shell.run("echo x"), "read": shell.read, "write": lambda: shell.write({})}[kind]()
    assert not shell.alive
    assert shell.run("echo second").ending == "lost"
    with pytest.raises(SandboxError, match="has ended"):
        shell.write({"a": File(b"")})
