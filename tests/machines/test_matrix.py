"""Commands on unusual machines, for `nox -s machines`: each row is a machine, each column a command.

A command may work or refuse in one line. It never shows a traceback, and where the row says so, it works.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not os.environ.get("GEM_CORE_MACHINES"), reason="takes minutes; `nox -s machines` runs it"
)

UNKNOWN_USER = 54321
"""First of the ids without a name. Each test has its own, because limits count all processes of a user."""
SEARCH = "tools(tools=\"search(corpus='multihop')\")"
COMMANDS = {
    "version": "--version",
    "envs": "envs",
    "play": "play game:GuessTheNumber-v0-easy --seed 1",
    "check": "check game:GuessTheNumber-v0-easy --seeds 1",
    "check programs": "check math:Arithmetic-v0 --seeds 1 --rules attacks_change_nothing --wrappers TOOLS",
    "eval": "eval --model random --env game:GuessTheNumber-v0-easy --episodes 4 --out OUT/eval",
    "search": "eval --model oracle --env qa:MultiHop-v0-search --wrappers SEARCH --episodes 2 --out OUT/qa",
    "report": "report RUN --out OUT/report.html",
    "view": "view RUN --out OUT/view.html",
    "exam": "exam reinforce --tasks stop --stages initial --batch-sizes 8 --budget 64 --workers 2",
    "bench": "bench game:GuessTheNumber-v0-easy --seconds 0.1",
    "train": (
        "train --model MODEL --env game:GuessTheNumber-v0-easy --steps 2 --episodes-per-step 8 "
        "--minibatches 1 --save-every 1 --eval-episodes 4 --out OUT/train"
    ),
    "doctor": "doctor",
}
WORDS = {"SEARCH": SEARCH, "TOOLS": "tools(tools='python')"}


@dataclass(frozen=True)
class Machine:
    """A row.

    Attributes:
        shell: Bash code that runs the command ``"$@"`` on this machine.
        works: Names of the commands that must work; None for all.
        env: Environment variables to set, or to unset for None.
        needs: What the row needs: "root", "mount", "namespaces", or "user" for an interpreter that every user
            can start.
        out: Folder for the results below the working directory.
        commands: Names of the commands to run.
    """

    shell: str = '"$@"'
    works: frozenset[str] | None = frozenset()
    env: dict[str, str | None] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    out: str = "out"
    commands: tuple[str, ...] = tuple(COMMANDS)


ALL = None
LIGHT = frozenset(("version", "envs", "play", "check", "report"))
USER = f"setpriv --reuid {UNKNOWN_USER} --regid {UNKNOWN_USER} --clear-groups"
AS_USER = f"exec {USER} "
IN_MOUNTS = "exec unshare --mount bash -c "
THEN = 'exec "$@"\' _ "$@"'
NONE = {"HOME": None, "XDG_CACHE_HOME": None, "GEM_CORE_CACHE": None, "USER": None, "LOGNAME": None}
MACHINES = {
    "as it is": Machine(works=ALL),
    "unknown user without HOME": Machine(
        AS_USER + '"$@"', LIGHT, NONE | {"MPLCONFIGDIR": None}, ("root", "user")
    ),
    "ascii locale": Machine(
        works=ALL,
        env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    "ascii locale, name with accents": Machine(
        works=LIGHT - {"play"} | {"eval", "view", "search"}, out="café",
        env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    "name that is not UTF-8": Machine(works=LIGHT | {"eval", "view", "search"}, out=os.fsdecode(b"caf\xe9")),
    "name of 250 bytes": Machine(works=ALL, out="n" * 250),
    "name with a line break": Machine(works=LIGHT | {"eval", "view", "search"}, out="a\nb"),
    "no stdin": Machine('"$@" <&-', ALL),
    "no stdout": Machine('"$@" >&-', ALL),
    "no stderr": Machine('"$@" 2>&-', ALL),
    "no streams": Machine('"$@" <&- >&- 2>&-', ALL),
    "stdout that cannot be written": Machine('"$@" </dev/null >/dev/full'),
    "stderr that cannot be written": Machine('"$@" 2>/dev/full', ALL),
    "deleted working directory": Machine('mkdir gone; cd gone; rmdir ../gone; "$@"', LIGHT - {"report"}),
    "no user namespaces": Machine(
        "exec unshare -U -r bash -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"' _ \"$@\"",
        ALL, needs=("namespaces",),
    ),
    "missing TMPDIR": Machine(works=ALL, env={"TMPDIR": "/nonexistent"}),
    "cache that is a file": Machine(
        'touch cache; "$@"', LIGHT | {"eval", "train"}, {"GEM_CORE_CACHE": "cache"}
    ),
    "cache that cannot be written": Machine(
        'mkdir cache; chmod 0 cache; ' + AS_USER + '"$@"',
        LIGHT, {"GEM_CORE_CACHE": "cache"}, ("root", "user"),
    ),
    "home that does not exist": Machine(works=ALL, env=NONE | {"HOME": "/nonexistent"}, needs=("root",)),
    "proxy that does not answer": Machine(
        works=ALL,
        env=dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"), "http://127.0.0.1:9"),
    ),
    "files of at most 8 KB": Machine('ulimit -f 8; "$@"', frozenset(("version", "envs", "play"))),
    "24 open files": Machine('ulimit -n 24; "$@"', LIGHT),
    "2 GB of address space": Machine('ulimit -v 2000000; "$@"', LIGHT),
    "one process": Machine(
        "ulimit -u 1; " + AS_USER + '"$@"',
        frozenset(("version", "envs")), NONE, ("root", "user"),
    ),
    "read-only results": Machine(
        IN_MOUNTS + "'mkdir -p out; mount --bind out out; mount -o remount,ro,bind out; " + THEN,
        LIGHT - {"report"}, needs=("root", "mount"),
    ),
    "read-only /dev/shm": Machine(
        IN_MOUNTS + "'mount --bind /dev/shm /dev/shm; mount -o remount,ro,bind /dev/shm; " + THEN,
        LIGHT | {"eval", "search", "train"}, needs=("root", "mount"),
    ),
    "read-only everything": Machine(
        IN_MOUNTS + "'for place in / /tmp /dev/shm; do mount --bind $place $place; "
        "mount -o remount,ro,bind $place; done; " + THEN,
        frozenset(("version", "envs", "play")), needs=("root", "mount"),
    ),
} | {
    f"disk of {size} KB": Machine(
        IN_MOUNTS + f"'mkdir -p out; mount -t tmpfs -o size={size}k none out; " + THEN,
        needs=("root", "mount"), commands=("eval", "search", "report", "train"),
    )
    for size in (4, 16, 64, 300, 500, 700, 900, 1000, 1100, 1500, 2000)
}  # fmt: skip


@functools.cache
def can(need: str) -> bool:
    """Return whether this machine can be made like one of the rows that have a need."""
    probes = {
        "root": f"{USER} true",
        "mount": "unshare --mount mount -t tmpfs none /mnt",
        "namespaces": "unshare -U -r true",
        "user": f"test -n '{python_of_every_user()}'",
    }
    return not subprocess.run(["bash", "-c", probes[need]], capture_output=True).returncode


@functools.cache
def python_of_every_user() -> str:
    """Return an interpreter that another user can start and that finds the same packages; "" if none does.

    It starts itself, because setpriv opens folders as root until it becomes the interpreter.
    """
    code = "import subprocess, sys, numpy, torch, gem_lab._cli; subprocess.check_call([sys.executable, '-V'])"
    for python in (sys.executable, "/usr/bin/python3"):
        words = [*USER.split(), python, "-c", code]
        if (
            shutil.which(python)
            and not subprocess.run(words, capture_output=True, env=variables({})).returncode
        ):
            return python
    return ""


def variables(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment of a command."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1", **changes}
    return {name: value for name, value in env.items() if value is not None}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Folder that every user can open: pytest closes its own whenever another pytest starts."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def inputs(place: Path) -> Path:
    """Folder of a finished evaluation and a tiny model, which other users can read."""
    folder = place / "inputs"
    folder.mkdir(mode=0o755)
    game = "game:GuessTheNumber-v0-easy"
    for words in (
        ["eval", "--model", "random", "--env", game, "--episodes", "4", "--out", str(folder / "run")],
        ["tiny", "--env", game, "--warm-start-steps", "1", "--out", str(folder / "model")],
    ):
        command = [sys.executable, "-m", "gem_lab", *words]
        subprocess.run(command, check=True, capture_output=True, umask=0o022)
    return folder


@pytest.fixture
def work(place: Path) -> Path:
    """Working directory in which every user may create files."""
    folder = Path(tempfile.mkdtemp(dir=place))
    folder.chmod(0o777)
    return folder


@pytest.mark.parametrize(
    ("machine", "command"), [(name, command) for name, row in MACHINES.items() for command in row.commands]
)
def test_command(machine: str, command: str, work: Path, inputs: Path) -> None:
    row = MACHINES[machine]
    if lacking := [need for need in row.needs if not can(need)]:
        pytest.skip(f"needs {', '.join(lacking)}")
    places = {"OUT": row.out, "RUN": str(inputs / "run"), "MODEL": str(inputs / "model")}
    words = [WORDS.get(word, word) for word in COMMANDS[command].split(" ")]
    for name, place in places.items():
        words = [word.replace(name, place) if word.startswith(name) else word for word in words]
    python = python_of_every_user() if "user" in row.needs else sys.executable
    user = UNKNOWN_USER + len(COMMANDS) * [*MACHINES].index(machine) + [*COMMANDS].index(command)
    shell = row.shell.replace(str(UNKNOWN_USER), str(user))
    result = subprocess.run(
        ["bash", "-c", shell, "_", python, "-m", "gem_lab", *words],
        cwd=work,
        env=variables(row.env),
        input="5\n:quit\n",
        capture_output=True,
        text=True,
        errors="replace",
        timeout=280,
        umask=0o022,
    )
    shown = f"{result.stdout[-500:]}\n{result.stderr[-3000:]}"
    assert "Traceback" not in result.stderr, shown
    assert result.returncode in (0, 2), shown
    if row.works is None or command in row.works:
        assert result.returncode == 0, shown
    elif result.returncode == 2 and result.stderr:
        last = result.stderr.rstrip().splitlines()[-1]
        assert last.startswith("gem-core: error: "), shown
