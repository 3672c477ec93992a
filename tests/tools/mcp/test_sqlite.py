"""The SQLite server: supported and rejected statements."""

from __future__ import annotations

import sqlite3

import pytest

pytest.importorskip("mcp", reason="MCP needs the extra 'mcp'")

from gem_chat.tools import ToolState, make_tools
from gem_envs.tools import _loop
from gem_envs.tools.mcp import _database
from gem_envs.tools.mcp._database import run_sql
from gem_envs.tools.mcp._sqlite import main
from tests.tools.mcp.servers import ENVIRONMENT


@pytest.fixture
def path(tmp_path):
    link = sqlite3.connect(tmp_path / "a.db")
    link.executescript("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1), (2);")
    link.close()
    return tmp_path / "a.db"


def rows(path):
    link = sqlite3.connect(path)
    try:
        return [row[0] for row in link.execute("SELECT a FROM t ORDER BY a")]
    finally:
        link.close()


def test_over_pipes_with_one_database(path):
    import sys

    command = f"{sys.executable} -m gem_envs.tools.mcp.sqlite --database {path}"
    tools = {t.name: t for t in make_tools(f"mcp(command={command!r}, env={ENVIRONMENT!r})")}
    assert set(tools) == {"list_tables", "describe_table", "query", "execute"}

    def use(name, **arguments):
        return _loop.run(tools[name].call(arguments, ToolState()))

    assert use("list_tables").text == "name | type\nt | table"
    assert "CREATE TABLE t (a INTEGER)" in use("describe_table", table="t").text
    assert use("execute", sql="INSERT INTO t VALUES (3); DELETE FROM t WHERE a = 1;").text == (
        "Rows changed: 1.\nRows changed: 1."
    )
    assert use("query", sql="SELECT * FROM t").text == "a\n2\n3"
    failed = use("execute", sql="INSERT INTO t VALUES (9); INSERT INTO nowhere VALUES (1)")
    assert (failed.ok, "no such table" in failed.text) == (False, True)
    assert rows(path) == [2, 3]
    assert not use("query", sql="DELETE FROM t").ok
    assert not use("query", sql="x" * 30_000).ok
    for sql in ("", " \n"):
        empty = use("query", sql=sql)
        assert (empty.ok, "there is no SQL statement" in empty.text) == (False, True)
    missing = use("describe_table", table="people")
    assert (missing.ok, "there is no table or view 'people'" in missing.text) == (False, True)
    assert use("query", sql="SELECT '\ud800'").text == "'\ufffd'\n\ufffd"  # and the session goes on
    assert use("query", sql="SELECT 1").ok


def test_the_tool_without_a_database():
    tool = next(iter(make_tools("sqlite")))
    result = _loop.run(tool.call({}, ToolState()))
    assert (result.ok, result.text) == (False, "list_tables failed: this environment has no database")


@pytest.mark.parametrize("sql", [
    "ATTACH '{out}' AS other", "VACUUM INTO '{out}'", "PRAGMA journal_mode = DELETE", "COMMIT; DELETE FROM t",
    "ROLLBACK", "PRAGMA writable_schema = 1", "SELECT load_extension('x')", "DETACH main",
])  # fmt: skip
def test_statements_that_reach_outside_are_rejected(path, tmp_path, sql):
    out = tmp_path / "out.db"
    with pytest.raises(sqlite3.Error):
        run_sql(str(path), sql.format(out=out), True)
    assert not out.exists()
    assert rows(path) == [1, 2]


def test_an_endless_command_is_stopped(path):
    endless = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"
    with (
        pytest.raises(sqlite3.OperationalError, match="interrupted"),
        _database.opened(path, seconds=0.2) as link,
    ):
        link.execute(endless).fetchall()


def test_a_database_stays_below_its_size(path):
    fill = (
        "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) INSERT INTO t SELECT "
        "zeroblob(900000) FROM n"
    )
    with pytest.raises(sqlite3.OperationalError):
        run_sql(str(path), fill, True)
    assert rows(path) == [1, 2]
    assert path.stat().st_size < 70 * 2**20


def test_long_results_are_cut(path):
    many = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n LIMIT 5000) SELECT a FROM n"
    text = run_sql(str(path), many, False)
    assert text.endswith("\n200\n(There are more than 200 rows.)")
    assert len(run_sql(str(path), "SELECT printf('%.*c', 90000, 'x')", False)) < 1000


@pytest.mark.parametrize("name", ["", "..", "a/b", "a.b", "x" * 81, "a\x00b"])
def test_names_that_are_paths(tmp_path, name):
    with pytest.raises(ValueError, match="expected letters"):
        _database.path_of(tmp_path, name)


def test_a_script_is_split_into_its_statements():
    script = "INSERT INTO t VALUES (';'); CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END; SELECT 2"
    assert [part.strip() for part in _database.statements(script)] == [
        "INSERT INTO t VALUES (';');", "CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END;", "SELECT 2"
    ]  # fmt: skip


def test_a_missing_database(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--database", str(tmp_path / "none.db")])
    assert "is not a file" in capsys.readouterr().err
