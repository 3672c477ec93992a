"""Tasks in the formats of terminal-bench and Harbor, from folders written by the tests."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml", reason="terminal-bench needs the extra 'terminal'")

import gem_core
from gem_core.errors import ConfigError, DataError
from gem_envs._terminal.dockerfile import files_of
from gem_envs.sandbox import self_check
from tests.envs.terminal.test_env import block

pytestmark = pytest.mark.skipif(
    not self_check()["namespace"].available, reason=self_check()["namespace"].reason
)

TESTS = """
from pathlib import Path

def test_it_is_found():
    assert Path("/app/out.txt").exists()

def test_it_is_right():
    assert Path("/app/out.txt").read_text() == "HELLO\\n"
"""


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def folder(tmp_path):
    solution = "#!/bin/bash\ntr a-z A-Z < /app/in.txt > /app/out.txt\n"
    write(
        tmp_path / "upper",
        {
            "task.yaml": "instruction: |-\n  Write in.txt in capital letters to out.txt.\n"
            "max_test_timeout_sec: 90\n",
            "Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n# data\nCOPY in.txt ./\nRUN mkdir -p /app/logs\n",
            "in.txt": "hello\n",
            "run-tests.sh": "exit 1\n",
            "tests/test_outputs.py": TESTS,
            "solution.sh": solution,
        },
    )
    write(
        tmp_path / "upper-harbor",
        {
            "instruction.md": "Write in.txt in capital letters to out.txt.\n",
            "task.toml": 'version = "1.0"\n[agent]\ntimeout_sec = 5\n[verifier]\ntimeout_sec = 77.0\n',
            "environment/Dockerfile": "FROM python:3.13\nWORKDIR /app\nCOPY data /app/\n",
            "environment/data/in.txt": "hello\n",
            "environment/data/deep/x": "x",
            "tests/test.sh": 'cmp -s /app/out.txt "$TEST_DIR"/want && echo 1 > /logs/verifier/reward.txt || '
            "echo 0.5 > /logs/verifier/reward.txt\n",
            "tests/want": "HELLO\n",
            "solution/solve.sh": solution,
        },
    )
    write(
        tmp_path / "web",
        {
            "task.yaml": "instruction: Serve.\n",
            "Dockerfile": "FROM debian\nRUN apt-get install -y nginx\n",
            "tests/test_outputs.py": "",
        },
    )
    return tmp_path


@pytest.fixture
def env(folder):
    with gem_core.make("eval:TerminalBench", folder=str(folder)) as made:
        yield made


@pytest.mark.parametrize("index", [0, 1])
def test_the_reference_solution_passes_the_tests_of_the_task(env, index):
    observation, _ = env.reset(options={"index": index})
    assert "Write in.txt in capital letters" in observation
    assert env.step(block("cat in.txt"))[0] == "hello"
    env.step(env.oracle_action())
    text, reward, terminated, *_ = env.step(env.oracle_action())
    assert (text, reward, terminated) == ("All tests pass.", 1.0, True)


def test_a_wrong_end_fails(env):
    env.reset(options={"index": 0})
    env.step(block("cp in.txt out.txt"))
    text, reward, _, _, info = env.step(block("submit"))
    assert (text, reward) == ("Tests that fail: test_outputs.py::test_it_is_right.", 0.0)
    assert info["metrics"]["progress"] == 0.5
    env.reset(options={"index": 1})
    env.step(block("cp in.txt out.txt"))
    text, reward, _, _, info = env.step(block("submit"))
    assert (text, reward, info["success"]) == ("Tests that fail: test.sh.", 0.5, False)


@pytest.mark.parametrize(
    "trick",
    [
        "echo 'def main(a): return 0' > pytest.py; mkdir pytest; echo 'def main(a): return 0' > "
        "pytest/__init__.py",
        "mkdir -p /tests; echo 'collect_ignore_glob = [\"*\"]' > /tests/conftest.py; chmod 000 /tests",
        "rm -rf /tests; mkdir -p /program; echo > /program/tests",
        "python3() { true; }; export -f python3; alias python3=true; PATH=/app; mkdir -p /logs; cd /tests",
        "(while :; do rm -f /tests/*; done) > /dev/null 2>&1 &",
    ],
)
def test_cheating_solutions_do_not_pass(env, trick):
    env.reset(options={"index": 0})
    env.step(block(trick))
    text, reward, terminated, *_ = env.step(block("submit"))
    assert (reward, terminated) == (0.0, True), text


def test_tasks_that_need_an_image_are_left_out_with_the_reason(env, folder):
    assert env.unwrapped.source.names == ["upper", "upper-harbor"]
    reason = "its image needs the unsupported instruction RUN apt-get install -y nginx"
    assert env.unwrapped.skipped == {"web": reason}
    with pytest.raises(ConfigError, match=f"task 'web': {reason}"):
        gem_core.make("eval:TerminalBench", folder=str(folder), tasks="web")
    with pytest.raises(DataError, match="build the images and use level='container'"):
        gem_core.make("eval:TerminalBench", folder=str(folder / "web"))


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({}, "folder=None: expected a folder"),
        ({"folder": "/nowhere"}, "expected a folder"),
        ({"folder": "."}, "no task at all"),
    ],
)
def test_folders_without_tasks(kwargs, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=said):
        gem_core.make("eval:TerminalBench", **kwargs)


def test_tasks_that_cannot_be_read(tmp_path):
    write(tmp_path / "a", {"task.yaml": "{", "tests/test_a.py": ""})
    write(tmp_path / "b", {"task.yaml": "instruction: 3", "tests/test_a.py": ""})
    write(tmp_path / "c", {"instruction.md": "Do it."})
    with pytest.raises(
        DataError, match=r"a: its task\.yaml cannot be read.*b: it has no instruction; c: it has no"
    ):
        gem_core.make("eval:TerminalBench", folder=str(tmp_path))


def test_results_for_another_parser_cannot_be_read(tmp_path):
    settings = "instruction: Do it.\nparser_name: swebench\n"
    write(tmp_path / "a", {"task.yaml": settings, "tests/test_a.py": ""})
    with pytest.raises(DataError, match=r"a: its test results are for the parser 'swebench', expected 'py"):
        gem_core.make("eval:TerminalBench", folder=str(tmp_path))


def test_whole_build_contexts_leave_the_answers_out(tmp_path):
    write(
        tmp_path,
        {
            "Dockerfile": 'FROM x\nWORKDIR /app/sub\nCOPY . .\nCOPY ["a b", "/app/c"]\n',
            "a b": "1",
            "tests/t.py": "",
            "solution.sh": "",
            "src/x.py": "",
        },
    )
    assert sorted(files_of(tmp_path / "Dockerfile")) == ["c", "sub/a b", "sub/src", "sub/src/x.py"]


@pytest.mark.parametrize(
    "line",
    [
        "WORKDIR /data",
        "COPY a /etc/a",
        "COPY ../x /app/",
        "COPY --from=build /a /app/",
        "ADD https://x.example/a /app/",
        "COPY nothing /app/",
        "COPY a ../../etc",
        "RUN mkdir -p /app/x && pip install y",
        "VOLUME /data",
    ],
)
def test_images_with_more_than_files_below_app(tmp_path, line):
    write(tmp_path, {"Dockerfile": f"FROM x\n{line}\n", "a": "1"})
    with pytest.raises(DataError):
        files_of(tmp_path / "Dockerfile")
