"""Level ``container`` in a real Podman, with an image made from the interpreter that runs the tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

import gem_core
from gem_core.errors import SandboxError
from gem_core.sandbox import ProgramLimits
from gem_core.sandbox.container import Container
from gem_core.sandbox.selftest.suite import attack_level
from gem_core.sandbox.shell import File, open_shell

IMAGE = "localhost/gem-core-test:1"
RUNTIME = ["--runtime", "runc"] if shutil.which("runc") else []
NAMES = ("bash", "cat", "chmod", "cp", "find", "ls", "mkdir", "readlink", "rm", "sleep")
PROGRAMS = [path for name in NAMES if (path := shutil.which(name))]
"""The machine's programs that the shell needs."""
ENGINE = " ".join(["podman", *RUNTIME])

pytestmark = pytest.mark.skipif(not shutil.which("podman"), reason="needs podman")


def libraries(path: str) -> list[str]:
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", listed)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """Sandbox with an image of this interpreter, its standard library, and their shared libraries."""
    python = os.path.realpath(sys.executable)
    standard = Path(sysconfig.get_path("stdlib"))
    left_out = {"test", "site-packages", "idlelib", "ensurepip", "lib2to3", "tkinter", "__pycache__"}
    needed = {python, *libraries(python), *PROGRAMS, *(path for one in PROGRAMS for path in libraries(one))}
    for module in (standard / "lib-dynload").glob("*.so"):
        needed.update(libraries(str(module)))
    archive = tmp_path_factory.mktemp("image") / "root.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        for path in sorted(needed):
            tar.add(path)
        tar.add(standard, filter=lambda entry: None if left_out & set(Path(entry.name).parts) else entry)
        link = tarfile.TarInfo("usr/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, python
        tar.addfile(link)
    subprocess.run(["podman", "import", "--quiet", str(archive), IMAGE], check=True, capture_output=True)
    archive.unlink()
    yield Container(image=IMAGE, engine=ENGINE)
    subprocess.run(["podman", "rmi", "--force", IMAGE], check=False, capture_output=True)


def test_output_input_and_files(sandbox):
    code = (
        "print(input())\nprint(open('in/a.txt').read())\nopen('b.txt', 'w').write('out')\n"
        "import os; print(os.getuid(), os.getcwd())"
    )
    result = sandbox.run(code, stdin="typed", files={"in/a.txt": b"given"}, fetch=["b.txt", "c.txt"])
    assert result[:4] == ("typed\ngiven\n65534 /program/run\n", "", "ok", 0)
    assert (result.level, dict(result.files)) == ("container", {"b.txt": b"out"})


@pytest.mark.parametrize(
    ("code", "ending"),
    [("1/0", "failed"), ("raise SystemExit(3)", "failed"), ("while True: pass", "timeout")],
)
def test_endings(sandbox, code, ending):
    limits = ProgramLimits(wall_seconds=3, cpu_seconds=1, processes=32)
    assert sandbox.run(code, limits=limits).ending == ending


def test_nothing_is_left_of_a_container(sandbox):
    sandbox.run("import os, time\nif os.fork() == 0:\n  os.setsid(); time.sleep(600)")
    names = subprocess.run(
        ["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True
    )
    assert "gem-core-" not in names.stdout


def test_every_attack_is_blocked(sandbox):
    outcomes = attack_level("container", sandbox=sandbox)
    assert {o.attack: o.evidence for o in outcomes if o.verdict != "blocked"} == {}


def test_a_missing_image_is_an_error_that_says_so():
    with pytest.raises(SandboxError, match="the container did not start"):
        Container(image="localhost/no-such-image:1", engine=ENGINE).run("1")


@pytest.fixture
def shell(sandbox, monkeypatch, request):
    monkeypatch.setenv("GEM_CORE_SANDBOX_ENGINE", ENGINE)
    one = open_shell("container", image=IMAGE, whole_image=getattr(request, "param", False))
    yield one
    one.close()
    names = subprocess.run(
        ["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True
    )
    assert "gem-core-" not in names.stdout


def test_a_shell_stays(shell):
    shell.write({"a/b.txt": File(b"given\n", 0o600)})
    assert shell.run("x=5; cd a; cat b.txt").output == "given\n"
    assert shell.run("echo $x; pwd").output == "5\n/app/a\n"
    assert shell.run("sleep 600", seconds=1).ending == "timeout"
    assert shell.run("trap '' INT; while :; do :; done", seconds=1).ending == "lost"
    assert shell.run("exit 3")[1:3] == (3, "exited")
    shell.run("echo new > c; rm -rf --no-preserve-root /etc /usr 2> /dev/null")
    assert shell.read()["a/b.txt"] == File(b"given\n", 0o600)
    assert shell.run("cat c; echo 1 > /x").output.startswith("new\n")
    assert shell.run("ls /x").status != 0


@pytest.mark.parametrize("shell", [True], indirect=True)
def test_a_shell_with_the_whole_image(shell):
    assert shell.run("mkdir -p /tests/deep && echo 1 > /x && cat /x").output == "1\n"
    shell.write({"t.py": File(b"1")}, "/tests")
    assert shell.run("ls /tests; echo > /dev/tcp/1.1.1.1/53").status != 0
    assert "t.py" in shell.run("ls /tests").output


def test_a_shell_in_a_missing_image(monkeypatch):
    monkeypatch.setenv("GEM_CORE_SANDBOX_ENGINE", ENGINE)
    with pytest.raises(SandboxError, match="the container did not start"):
        open_shell("container", image="localhost/no-such-image:1")


def test_a_task_of_our_own_in_a_container(sandbox, monkeypatch):
    monkeypatch.setenv("GEM_CORE_SANDBOX_ENGINE", ENGINE)
    with gem_core.make("terminal:Tasks-v0", tasks="permissions", level="container", image=IMAGE) as env:
        env.reset(seed=0)
        env.step(env.oracle_action())
        assert env.step(env.oracle_action())[:2] == ("All tests pass.", 1.0)


def test_a_task_of_a_folder_in_its_image(sandbox, monkeypatch, tmp_path):
    monkeypatch.setenv("GEM_CORE_SANDBOX_ENGINE", ENGINE)
    for path, text in {
        "test/instruction.md": "Make the file /data/done.",
        "test/environment/Dockerfile": "FROM x\nRUN mkdir /data && apt-get install -y everything\n",
        "test/tests/test.sh": "ls /data/done && echo 1 > /logs/verifier/reward.txt\n",
        "test/solution/solve.sh": "mkdir -p /data; echo > /data/done\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    kwargs = {"folder": str(tmp_path), "level": "container", "image": "localhost/gem-core-{task}:1"}
    with gem_core.make("eval:TerminalBench", **kwargs) as env:
        for action, reward in ((None, 1.0), ("```bash\nls /\n```", 0.0)):
            env.reset(seed=0)
            env.step(action or env.oracle_action())
            assert env.step("```bash\nsubmit\n```")[1] == reward
