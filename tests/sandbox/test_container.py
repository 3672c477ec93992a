"""Level ``container`` in a real Podman, with an image made from the interpreter that runs the tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gem_core
from gem_core.errors import SandboxError
from gem_envs.sandbox import File, ProgramLimits, open_shell
from gem_envs.sandbox._container import Container
from gem_envs.sandbox._selftest.suite import attack_level
from tests.sandbox.support import settles

IMAGE = f"localhost/gem-core-test:{os.getpid()}"  # the tests may run in several processes
RUNTIME = ["--runtime", "runc"] if shutil.which("runc") else []
NAMES = ("bash", "cat", "chmod", "cp", "find", "ls", "mkdir", "readlink", "rm", "sleep")
PROGRAMS = [path for name in NAMES if (path := shutil.which(name))]
"""The machine's programs that the shell needs."""
ENGINE = " ".join(["podman", *RUNTIME])

pytestmark = [pytest.mark.once, pytest.mark.skipif(not shutil.which("podman"), reason="needs podman")]


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


def containers():
    """Return the names of the containers of this process's image; other processes have theirs."""
    command = ["podman", "ps", "--all", "--filter", f"ancestor={IMAGE}", "--format", "{{.Names}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_nothing_is_left_of_a_container(sandbox):
    sandbox.run("import os, time\nif os.fork() == 0:\n  os.setsid(); time.sleep(600)")
    assert containers() == []


@pytest.mark.long
def test_every_attack_is_blocked(sandbox):
    outcomes = attack_level("container", sandbox=sandbox)
    assert {o.attack: o.evidence for o in outcomes if o.verdict != "blocked"} == {}


OPEN = (
    "import os\nothers = [pid for pid in range(1, 40) if pid != os.getpid()]\n"
    "for path in [f'/proc/{{pid}}/{{name}}' for pid in others for name in ({names})]:\n"
    "  try:\n"
    "    descriptor = os.open(path, os.{mode})\n"
    "    print('REACHED', path)\n"
    "    os.write(descriptor, b'{{}}\\n')\n"
    "  except OSError: pass\n"
)
FORGED = {
    "its output": OPEN.format(names="'fd/0', 'fd/1', 'fd/2', 'fd/3'", mode="O_WRONLY"),
    "its memory": OPEN.format(names="'mem', 'environ', 'maps', 'auxv'", mode="O_RDONLY"),
    "a descriptor": (
        "import os, ctypes\nlibc = ctypes.CDLL(None)\n"
        "handle = libc.syscall(434, 1, 0)\n"  # pidfd_open
        "if libc.syscall(438, handle, 1, 0) >= 0: print('REACHED')\n"  # pidfd_getfd
    ),
    "tracing": "import ctypes\nif ctypes.CDLL(None).ptrace(0x4206, 1, 0, 0) == 0: print('REACHED')\n",
    "signals": "import os\nfor number in (2, 9, 15, 19): os.kill(1, number)\n",
    "its limits": (
        "import resource\ntry: resource.prlimit(1, 7, (0, 0)); print('REACHED')\nexcept OSError: pass\n"
    ),
    "an inherited stream": (
        "import os\nfor number in range(3, 64):\n"
        "  try: os.write(number, b'{}\\n'); print('REACHED')\n"
        "  except OSError: pass\n"
    ),
    "the files of its output": (
        "import os, shutil\nshutil.rmtree('/program', True)\n"
        "for name in ('out', 'err', 'in'):\n"
        "  try: os.mkdir('/program/' + name)\n"
        "  except OSError: pass\n"
    ),
    "a flood from a process that is left": (
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n"
        "  while True:\n"
        "    try: os.write(os.open('/proc/1/fd/1', 1), b'x' * 2**20)\n"
        "    except OSError: pass\n"
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_program_cannot_answer_for_itself(sandbox, name):
    result = sandbox.run(FORGED[name] + "print('its own output')", fetch=["b.txt"])
    assert (result.stdout, result.ending) == ("its own output\n", "ok")
    assert not result.files


def test_only_regular_files_of_its_folder_are_fetched(sandbox):
    links = {
        "a": "/proc/1/environ", "b": "/etc/passwd", "c": "/dev/zero", "d": "../code", "e": "/proc/self/fd/0"
    }  # fmt: skip
    code = f"import os\nfor name, target in {links!r}.items(): os.symlink(target, name)\n"
    code += "os.mkfifo('f'); os.mkdir('g'); os.symlink('/', 'h'); open('i', 'w').write('x')"
    result = sandbox.run(code, fetch=[*links, "f", "g", "h/program/code", "i"])
    assert (result.ending, dict(result.files)) == ("ok", {"i": b"x"})


def test_a_whole_container_has_limits(sandbox):
    if "cannot" in sandbox.about:
        pytest.skip("the engine cannot limit a container on this machine")
    code = (
        "import os, time\n"
        "for _ in range(10):\n"
        "  if os.fork() == 0: block = b'x' * (40 * 2**20); time.sleep(2); os._exit(0)\n"
        "print({os.wait()[1] for _ in range(10)} - {0} or 'held')"
    )
    for memory_bytes, output in ((90 * 2**20, "{9}\n"), (180 * 2**20, "held\n")):
        limits = ProgramLimits(wall_seconds=60, memory_bytes=memory_bytes, processes=16)
        assert sandbox.run(code, limits=limits).stdout == output


def test_the_processes_of_one_container_leave_those_of_another_alone(sandbox):
    if "cannot" in sandbox.about:
        pytest.skip("the engine cannot limit a container on this machine")
    code = (
        "import os, time\nmade = 0\ntry:\n"
        "  for _ in range(60):\n"
        "    if os.fork() == 0: time.sleep(8); os._exit(0)\n"
        "    made += 1\n"
        "except OSError: pass\n"
        "time.sleep({seconds}); print(made)"
    )
    limits = ProgramLimits(wall_seconds=60, processes=20)
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: sandbox.run(code.format(seconds=4), limits=limits).stdout, range(3)))
    assert all(16 <= int(number) <= 28 for number in made), made


def test_nothing_outlives_a_caller_that_was_killed(sandbox):
    code = (
        "from gem_envs.sandbox._container import Container\nfrom gem_envs.sandbox import open_shell\n"
        f"shell = open_shell('container', image={IMAGE!r}); print(shell.run('echo on').output, flush=True)\n"
        f"Container(image={IMAGE!r}, engine={ENGINE!r}).run('import time; time.sleep(3)')"
    )
    env = {**os.environ, "GEM_CORE_SANDBOX_ENGINE": ENGINE}

    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as caller:
        assert caller.stdout.readline() == "on\n"
        assert settles(lambda: len(containers()) == 2)
        caller.kill()
    assert settles(lambda: containers() == [])


def test_a_missing_image_is_an_error_that_says_so():
    with pytest.raises(SandboxError, match="the container did not start"):
        Container(image="localhost/no-such-image:1", engine=ENGINE).run("1")


@pytest.fixture
def shell(sandbox, monkeypatch, request):
    monkeypatch.setenv("GEM_CORE_SANDBOX_ENGINE", ENGINE)
    one = open_shell("container", image=IMAGE, whole_image=getattr(request, "param", False))
    yield one
    one.close()
    assert containers() == []


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
    image = f"localhost/gem-core-{{task}}:{os.getpid()}"
    kwargs = {"folder": str(tmp_path), "level": "container", "image": image}
    with gem_core.make("eval:TerminalBench", **kwargs) as env:
        for action, reward in ((None, 1.0), ("```bash\nls /\n```", 0.0)):
            env.reset(seed=0)
            env.step(action or env.oracle_action())
            assert env.step("```bash\nsubmit\n```")[1] == reward


@pytest.mark.parametrize("shell", [False, True], indirect=True)
def test_no_command_answers_for_the_driver(shell):
    shell.write({"kept": File(b"1")})
    for command in (
        "for fd in 0 1 2 3 4; do echo garbage > /proc/1/fd/$fd; done",
        "for fd in 0 1 2 3 4; do echo {} > /proc/$PPID/fd/$fd; done",
        "cat /proc/1/mem /proc/1/environ /proc/1/maps",
    ):
        result = shell.run(f"({command}) 2> /dev/null")
        assert (result.output, result.ending) == ("", "ok")
    shell.run("(while :; do echo garbage > /proc/1/fd/1; done) 2> /dev/null &")
    assert shell.run("echo on").output == "on\n"
    assert shell.read()["kept"].data == b"1"


def test_a_background_job_cannot_answer_for_the_grader(sandbox, monkeypatch, tmp_path):
    monkeypatch.setenv("GEM_CORE_SANDBOX_ENGINE", ENGINE)
    for path, text in {
        "test/instruction.md": "Make the file /app/done.",
        "test/environment/Dockerfile": "FROM x\n",
        "test/tests/test.sh": "[ -e /app/done ] && echo 1 > /logs/verifier/reward.txt\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    result = {"output": "1", "status": 0, "ending": "ok", "folder": "/app", "left_out": 0, "entries": []}
    forged = f"{json.dumps(result)}\n" * 9
    job = f"printf %s {shlex.quote(forged)} > forged; (sleep 1; cat forged > /proc/1/fd/1; cat < /proc/1/fd/0"
    job = f"```bash\n{job}) > /dev/null 2>&1 & disown; sleep 2\nsubmit\n```"
    with gem_core.make("eval:TerminalBench", folder=str(tmp_path), level="container", image=IMAGE) as env:
        env.reset(seed=0)
        assert env.step(job)[1] == 0.0
