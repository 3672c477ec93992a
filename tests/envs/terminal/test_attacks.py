"""Players that want the reward of a folder's task without its work."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml", reason="terminal-bench needs the extra 'terminal'")

import gem_core
from gem_envs.sandbox import self_check
from tests.envs.terminal.test_env import block
from tests.envs.terminal.test_folder import write

pytestmark = pytest.mark.skipif(
    not self_check()["namespace"].available, reason=self_check()["namespace"].reason
)

FORMAT = "printf 'FROM debian\\nWORKDIR /app\\n'"
IMPORTS = """
import sys
sys.path.insert(0, "/app")

def test_double():
    from solution import double
    assert double(21) == 42

def test_zero():
    from solution import double
    assert double(0) == 0
"""
RUNS = """
import subprocess, sys

def test_program():
    assert subprocess.run(["bash", "/app/run"], capture_output=True).stdout == b"42\\n"

def test_helper():
    subprocess.run([sys.executable, "/tests/check.py"], check=True)
"""
WRITES = '[ "$(cat /app/answer.txt)" = done ] && echo 1 > {0} || echo 0 > {0}\n'.format(
    "/logs/verifier/reward.txt"
)
HELPER = "import sys\nsys.exit(open('/app/answer.txt').read() != 'done\\n')\n"


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    image = "FROM debian\nWORKDIR /app\n"
    write(
        root / "imports",
        {"task.yaml": "instruction: Double.", "Dockerfile": image, "tests/test_it.py": IMPORTS},
    )
    write(
        root / "runs",
        {
            "task.yaml": "instruction: Run.",
            "Dockerfile": image,
            "tests/test_it.py": RUNS,
            "tests/check.py": HELPER,
        },
    )
    write(
        root / "harbor",
        {"instruction.md": "Write done.", "environment/Dockerfile": image, "tests/test.sh": WRITES},
    )
    script = f"bash /app/run; {WRITES}; python3 /tests/check.py || echo 0 > /logs/verifier/reward.txt"
    write(
        root / "harbor-runs",
        {
            "instruction.md": "Run.",
            "environment/Dockerfile": image,
            "tests/test.sh": script,
            "tests/check.py": HELPER,
        },
    )
    with gem_core.make("eval:TerminalBench", folder=str(root), seconds=60) as env:
        yield env


def play(env, task, *commands):
    env.reset(options={"index": env.unwrapped.source.names.index(task)})
    for command in commands:
        env.step(block(command))
    text, reward, terminated, *_ = env.step(block("submit"))
    assert terminated
    return reward, text


MODULE = "cat > /app/solution.py <<'P'\n{}\nP"


@pytest.mark.parametrize(
    ("task", "command"),
    [
        ("imports", MODULE.format("print('FAILED', flush=True)\ndef double(x): return x + x")),
        ("runs", "echo 'echo 42' > run; echo done > answer.txt"),
        (
            "harbor",
            "cd /program; mkdir -p logs/verifier tests/x; chmod 0 tests logs/verifier logs; "
            "echo done > app/answer.txt",
        ),
        ("harbor", "rm -rf /program/logs; ln -s /nowhere /program/logs; echo done > answer.txt"),
        ("harbor-runs", "echo done > answer.txt; touch run"),
    ],
)
def test_honest_work_is_paid(env, task, command):
    assert play(env, task, command) == (1.0, "All tests pass.")


REPORTS = r"""
import os

def report():
    for number in range(30):
        try:
            os.write(number, b'\nPASSED test_it.py::test_double\nPASSED test_it.py::test_zero\n2 passed\n')
            os.write(number, b'0 ["test_it.py::test_double", "passed"]\n0 ["status", 0]\n')
        except OSError:
            pass
    os._exit(0)
"""


@pytest.mark.parametrize(
    "module",
    [
        "import os; os._exit(0)",
        "def double(x):\n    if x: return 42\n    import os; os._exit(0)",
        f"{REPORTS}\nreport()",
        f"{REPORTS}\nimport atexit; atexit.register(report)",
        "import sys; sys.exit(0)",
        "import pytest; pytest.exit('done', 0)",
        "import pytest; pytest.skip('done', allow_module_level=True)",
        "import pytest; pytest.xfail('done')",
        "import os\nif os.fork(): os._exit(0)",
        "import gc, pytest\nfor one in gc.get_objects():\n    if isinstance(one, pytest.Session):\n"
        "        one.items.clear()\ndef double(x): return 42",
        "import os; os.execv('/bin/true', ['true'])",
    ],
)
def test_a_module_that_a_test_imports_cannot_end_the_tests_early(env, module):
    reward, text = play(env, "imports", MODULE.format(module))
    assert reward == 0.0, text


HIJACK = "import os; os._exit(0)"
SITE = "$(python3 -c 'import site; print(site.getusersitepackages())')"


@pytest.mark.parametrize(
    "command",
    [
        "setsid sh -c 'while :; do echo collect_ignore_glob=[1] > /tests/conftest.py; done' > x 2>&1 &",
        f"for d in /app /program /tmp; do echo '{HIJACK}' > $d/conftest.py; "
        "printf '[pytest]\\naddopts = --collect-only\\n' > $d/pytest.ini; done",
        f"for n in pytest _pytest pluggy sitecustomize usercustomize json; do echo '{HIJACK}' > $n.py; done",
        f"mkdir -p {SITE}; echo '{HIJACK}' > {SITE}/usercustomize.py; echo '{HIJACK}' > {SITE}/x.pth",
        "export PYTEST_ADDOPTS=--collect-only PYTHONPATH=/app BASH_ENV=/app/x PATH=/app:$PATH; "
        "printf '#!/bin/sh\\nexit 0\\n' > python3; chmod +x python3; cp python3 x",
        "mkdir -p /program/tests/__pycache__; echo 'def test_it(): pass' > /program/tests/test_it.py; "
        "chmod 555 /program/tests; chmod 444 /program/tests/*",
        "rm -rf /program/tests; mkdir other; ln -s /app/other /program/tests; chmod 555 other",
        "head -c 99999999 /dev/zero > full; true",
        "for i in $(seq 5000); do : > f$i; done 2> /dev/null",
    ],
)
def test_a_prepared_machine_does_not_pass(env, command):
    reward, text = play(env, "runs", f"echo 'echo 42' > run; {command}")
    assert reward == 0.0, text


PLANT = "echo 1 > $L/verifier/reward.txt; echo '{\"reward\": 1}' > $L/verifier/reward.json"
"""Needs the variable L, the folder that /logs leads to; /logs itself leads nowhere at first."""


@pytest.mark.parametrize(
    ("task", "command"),
    [
        ("harbor", f"mkdir -p $L/verifier; {PLANT}; chmod 555 $L/verifier"),
        ("harbor", f"mkdir -p $L/verifier; {PLANT}; chmod 444 $L/*/*; chmod 555 $L/* $L /program"),
        ("harbor", f"mkdir -p $L /program/x; ln -s /program/x $L/verifier; {PLANT}; chmod 555 /program/x"),
        ("harbor", f"mkdir -p /program/x/verifier; ln -s x $L; {PLANT}; chmod 555 $L/verifier"),
        ("harbor", "mkdir -p $L/verifier; echo 1 > a; ln -s /app/a $L/verifier/reward.txt; chmod 555 $L/*"),
        ("harbor", "mkdir -p $L; mkfifo $L/verifier"),
        ("harbor", "mkdir -p $L/verifier/reward.txt/x $L/verifier/reward.json/x"),
        (
            "harbor",
            "mkdir -p $L/verifier; cd $L; ln -s /tests/test.sh tests.txt; "
            "ln -s /tests/test.sh verifier/test-stdout.txt",
        ),
        ("harbor", f"mkdir -p $L/verifier; (while :; do {PLANT}; done) > /dev/null 2>&1 &"),
        ("harbor", "mkdir -p $L/verifier/$(printf 'd/%.0s' $(seq 1500))"),
        (
            "harbor",
            "export BASH_ENV=/app/x; echo 'cat() { echo done; }' > x; . ./x; export -f cat; cp x .bashrc",
        ),
        ("harbor", "head -c 99999999 /dev/zero > full; true"),
        ("harbor-runs", f"mkdir -p {SITE}; echo '{HIJACK}' > {SITE}/usercustomize.py; echo done > x"),
    ],
)
def test_a_planted_reward_is_not_paid(env, task, command):
    reward, text = play(env, task, f"touch run; L=/program/logs; {command}")
    assert reward == 0.0, text


@pytest.mark.parametrize(
    "program",
    [
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json",
        "(sleep 2; echo 1 > /logs/verifier/reward.txt) > /dev/null 2>&1 &",
        "setsid sh -c 'trap : TERM INT HUP; sleep 2; echo 1 > /logs/verifier/reward.txt' > /dev/null 2>&1 &",
        "ln -s /dev/zero /logs/verifier/reward.json",
        "mkfifo /logs/verifier/reward.json",
        "head -c 9999999 /dev/zero > /logs/verifier/reward.json",
        "echo NaN > /logs/verifier/reward.json; (sleep 2; echo 1e999 > /logs/verifier/reward.txt) &",
        "kill -9 $PPID",
    ],
)
def test_a_program_that_the_test_script_runs_does_not_raise_its_reward(env, program):
    reward, text = play(env, "harbor-runs", f"cat > run <<'P'\n{program}\nP")
    assert reward == 0.0, text


@pytest.mark.parametrize(
    ("printed", "right"),
    [
        ("PASSED ../tests/test_it.py::test_one", True),
        ("1 passed", False),
        ("PASSED ../tests/test_it.py::test_other", False),
        ("", False),
        ("FAILED ../tests/test_it.py::test_one", False),
    ],
)
def test_a_script_that_ends_well_without_its_tests_is_not_paid(tmp_path, printed, right):
    files = {
        "task.yaml": "instruction: Do it.",
        "Dockerfile": "FROM debian\nWORKDIR /app\n",
        "tests/test_it.py": "def test_one(): pass\n",
        "run-tests.sh": f"echo '{printed}'\n",
    }
    write(tmp_path / "a", files)
    with gem_core.make("eval:TerminalBench", folder=str(tmp_path), run_script=True) as env:
        assert play(env, "a", "touch x")[0] == float(right)
