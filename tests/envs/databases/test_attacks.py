"""Models that want to stop, fill, or deceive the grading of a database."""

from __future__ import annotations

import base64
import json
import os
import tracemalloc
import zlib

import pytest

from gem_core.errors import ConfigError, EnvError
from gem_envs._databases import env as env_module
from gem_envs._databases import task as tasks
from gem_envs._databases.env import Databases
from gem_envs._databases.folder import SqliteFolder
from gem_envs._databases.task import build, change, unlike_solution
from gem_envs.tools.mcp._limited import run_limited

ROWS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {})"
LONG = "replace(hex(zeroblob(60000)), '00', 'a')"
OTHER = "replace(hex(zeroblob(59999)), '00', 'b') || 'a'"
QUERIES = [
    f"{ROWS.format(300)} SELECT n, zeroblob(1000000) FROM c",
    f"{ROWS.format(300)} SELECT n, hex(zeroblob(400000)) FROM c",
    f"{ROWS.format(10**9)} SELECT n FROM c",
    f"{ROWS.format(10**9)} SELECT n, zeroblob(1000000) FROM c ORDER BY 2",
    "SELECT " + ", ".join(f"zeroblob(1000000) AS c{n}" for n in range(300)),
    f"SELECT length(trim({LONG}, {OTHER})) a, length(trim({LONG}, {OTHER})) b",
]


@pytest.fixture
def env():
    env = Databases(tasks="shop")
    env.reset(seed=3)
    yield env
    env.close()


def graded(env, *statements):
    """Return the reward after the reference solution and more statements."""
    solution = env.task.solution
    change(env._path, f"{solution};\n{';'.join(statements)}" if statements else solution)
    text, reward, terminated, *_ = env.step(f"\\boxed{{{env.best_move()}}}")
    assert terminated
    return reward, text


def test_the_solution_is_paid(env):
    assert graded(env)[0] == 1.0


@pytest.mark.parametrize("query", QUERIES)
def test_reading_a_view_has_a_bound_of_time_and_memory(env, query, monkeypatch):
    monkeypatch.setattr(tasks, "SECONDS", 0.3)
    tasks._solved(env.task.setup, env.task.solution, env.task.probes)  # which is not measured
    tracemalloc.start()
    try:
        reward, text = graded(env, f"CREATE VIEW zz AS {query}")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reward == 0.0
    assert any(words in text for words in ("zz", "too long", "too much memory")), text
    assert peak < 5 * 2**20


@pytest.mark.parametrize("query", [QUERIES[0], QUERIES[2], QUERIES[5]])
def test_the_second_solver_reads_a_view_with_a_bound_of_time_and_memory(env, query, monkeypatch):
    monkeypatch.setattr(env_module, "SECONDS", 1.0)
    change(env._path, env.task.solution)
    right = f"\\boxed{{{env.best_move()}}}"
    assert env.verify(right) is True
    change(env._path, f"CREATE VIEW zz AS {query}")
    own = sum(os.times()[:2])
    tracemalloc.start()
    try:
        assert env.verify(right) is False
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * 2**20
    assert sum(os.times()[:2]) - own < 0.5  # the process of the trainer only waits


def test_a_second_solver_whose_process_ends_has_no_verdict(env, monkeypatch):
    monkeypatch.setattr(env_module, "run_limited", lambda *_, **__: run_limited("os:_exit", 1.0, status=9))
    with pytest.raises(EnvError, match="the database is not read: its process ended with status 9"):
        env.verify("\\boxed{done}")


def test_a_trigger_that_uses_up_the_time_of_a_probe_is_no_refusal(tmp_path, monkeypatch):
    """A probe that has to fail must not be satisfied by a statement that is stopped."""
    monkeypatch.setattr(tasks, "SECONDS", 0.3)
    setup = "CREATE TABLE t (a INTEGER); CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END;"
    solution = "DROP TRIGGER r; CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT RAISE(ABORT, 'no'); END;"
    task = tasks.DatabaseTask("", setup, solution, (), probes=("INSERT INTO t VALUES (1)",))
    path = tmp_path / "a.db"
    for body, right in [
        ("SELECT RAISE(FAIL, 'no')", True),
        ("SELECT 1", False),
        (f"SELECT length(trim({LONG}, {OTHER}))", False),
        (f"SELECT count(*) FROM ({ROWS.format(10**9)} SELECT n FROM c)", False),
    ]:
        build(path, setup)
        change(path, f"DROP TRIGGER r; CREATE TRIGGER r AFTER INSERT ON t BEGIN {body}; END;")
        assert (unlike_solution(path, task) == []) == right, body


def test_many_tables_are_named_up_to_a_bound(env):
    reward, text = graded(env, *(f"CREATE TABLE [t{n}{'x' * 300}] (a)" for n in range(300)))
    assert reward == 0.0
    assert len(text) < 1000


def test_a_grading_process_that_ends_gives_no_verdict(env, monkeypatch):
    monkeypatch.setattr(tasks, "run_limited", lambda *_, **__: run_limited("os:_exit", 1.0, status=9))
    with pytest.raises(EnvError, match="the database is not graded: its process ended with status 9"):
        graded(env)


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        (lambda: packed(bytes(300 * 2**20)), "more than 67108864 bytes"),
        (lambda: packed(bytes(2**20))[:-40], "damaged"),
        (lambda: "!", "damaged"),
        (lambda: "AAAA", "damaged"),
        (lambda: 7, "damaged"),
    ],
)
def test_a_saved_database_has_a_bound(env, saved, said):
    state = json.loads(json.dumps(env.get_state()))
    before = env._path.read_bytes()
    state["fields"]["database"] = saved()
    with pytest.raises(ConfigError, match=said):
        env.set_state(state)
    assert env._path.read_bytes() == before


def test_a_saved_database_may_have_the_size_of_the_one_that_came_with_the_task(tmp_path, monkeypatch):
    monkeypatch.setattr(env_module, "MOST_BYTES", 2**16)
    folder = tmp_path / "firm" / "promote"
    folder.mkdir(parents=True)
    (folder / "description.md").write_text("Promote.")
    (folder / "verify.py").write_text("")
    build(tmp_path / "firm" / "firm.db", "CREATE TABLE t (a); INSERT INTO t VALUES (randomblob(200000));")
    env = SqliteFolder(str(tmp_path))
    env.reset(seed=0)
    env.set_state(env.get_state())
    assert env._path.stat().st_size > 200_000
    env.close()
