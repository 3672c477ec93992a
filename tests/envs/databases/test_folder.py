"""Tasks in the format of MCPMark, from a folder written by the tests."""

from __future__ import annotations

import json
import sqlite3

import pytest

import gem_core
from gem_core.errors import ConfigError, DataError
from gem_lab import check_env
from tests.envs.databases.test_env import call
from tests.support import needs

pytestmark = needs("mcp", "mcp")

VERIFY = """
import os, sqlite3, sys
link = sqlite3.connect(os.environ["SQLITE_DATABASE"])
(title,) = link.execute("SELECT title FROM staff WHERE id = 1").fetchone()
print("found", title)
sys.exit(0 if title == "CEO" else 1)
"""
SETUP = "CREATE TABLE staff (id INTEGER, title TEXT); INSERT INTO staff VALUES (1, 'clerk');"


def write(folder, name, service="sqlite", truth=None):
    path = folder / "standard" / "firm" / name
    path.mkdir(parents=True)
    (path / "description.md").write_text("Make employee 1 the CEO.")
    (path / "verify.py").write_text(VERIFY)
    (path / "meta.json").write_text(json.dumps({"task_id": name, "category_id": "firm", "mcp": [service]}))
    if truth:
        (path / "ground_truth.sql").write_text(truth)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, "promote", truth="UPDATE staff SET title = 'CEO' WHERE id = 1;")
    write(tmp_path, "promote_again")
    write(tmp_path, "elsewhere", service="postgres")
    link = sqlite3.connect(tmp_path / "standard" / "firm.db")
    link.executescript(SETUP)
    link.close()
    return tmp_path


def test_the_oracle_and_a_player_are_graded_by_the_verifier(folder):
    with gem_core.make("eval:SQLiteFolder", folder=str(folder)) as env:
        observation, _ = env.reset(options={"index": 0})
        assert "Make employee 1 the CEO." in observation
        env.step(env.oracle_action())
        assert env.step(env.oracle_action())[1:3] == (1.0, True)
        env.reset(options={"index": 1})
        assert env.oracle_action() is None
        assert "clerk" in env.step(call("query", sql="SELECT * FROM staff"))[0]  # not the previous database
        text, reward, terminated, *_ = env.step("\\boxed{done}")
        assert (text, reward, terminated) == ("Not as it should be: verify.py.", 0.0, True)
        env.reset(options={"index": 1})
        env.step(call("execute", sql="UPDATE staff SET title = 'CEO'"))
        assert env.step("\\boxed{done}")[1] == 1.0


def test_check_env(folder):
    rules = "twins_are_equal states_survive_json forks_are_equal_and_independent random_actions_are_legal"
    check_env("eval:SQLiteFolder", rules=rules.split(), seeds=(0, 1), folder=str(folder))


def test_a_database_from_sql_in_another_folder(folder, tmp_path):
    (folder / "standard" / "firm.db").unlink()
    other = tmp_path / "databases"
    other.mkdir()
    (other / "firm.sql").write_text(SETUP)
    with gem_core.make("eval:SQLiteFolder", folder=str(folder), databases=str(other)) as env:
        env.reset(seed=0)
        assert "clerk" in env.step(call("query", sql="SELECT * FROM staff"))[0]


def test_tasks_that_cannot_be_played(folder):
    with gem_core.make("eval:SQLiteFolder", folder=str(folder)) as env:
        assert env.unwrapped.skipped == {"elsewhere": "it is for postgres, not for sqlite"}
    with pytest.raises(ConfigError, match="task 'elsewhere': it is for postgres"):
        gem_core.make("eval:SQLiteFolder", folder=str(folder), tasks="elsewhere")
    (folder / "standard" / "firm.db").unlink()
    with pytest.raises(DataError, match=r"no firm\.db"):
        gem_core.make("eval:SQLiteFolder", folder=str(folder))
    for given in (None, str(folder / "nowhere")):
        with pytest.raises(DataError, match="expected a folder"):
            gem_core.make("eval:SQLiteFolder", folder=given)


@pytest.mark.parametrize("kind", ["name", "database", "description", "truth"])
def test_a_task_reads_nothing_outside_its_folders(folder, kind, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    secret = elsewhere / "secret.sql"
    secret.write_text(SETUP)
    task = folder / "standard" / "firm" / "promote"
    if kind == "name":
        facts = {"category_id": str(elsewhere / "secret"), "mcp": ["sqlite"]}
        (task / "meta.json").write_text(json.dumps(facts))
    else:
        name = {"database": "database.sql", "description": "description.md", "truth": "ground_truth.sql"}[
            kind
        ]
        (task / name).unlink(missing_ok=True)
        (task / name).symlink_to(secret)
    expected = "is not a name" if kind == "name" else "is a link"
    with pytest.raises(ConfigError, match=f"task 'promote': .*{expected}"):
        gem_core.make("eval:SQLiteFolder", folder=str(folder), tasks="promote")
