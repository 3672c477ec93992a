"""Calls in processes that end when they take too long, and hostile statements in them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading

import pytest

from gem_envs.tools.mcp._limited import LimitedError, run_limited

LONG = "replace(hex(zeroblob(60000)),'00','a')"
OTHER = "replace(hex(zeroblob(59999)),'00','b')||'a'"
LONGER = "replace(hex(zeroblob(400000)),'00','a')"
RUN = "gem_envs.tools.mcp._database:run_sql"
MANY = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n LIMIT 400)"


@pytest.fixture
def path(tmp_path):
    link = sqlite3.connect(tmp_path / "a.db")
    link.executescript("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1), (2);")
    link.close()
    return str(tmp_path / "a.db")


def run(path, sql, write=False, seconds=5.0):
    return run_limited(RUN, seconds, path=path, sql=sql, write=write)


def test_results_and_errors(path):
    assert run(path, "SELECT * FROM t") == "a\n1\n2"
    assert run(path, "INSERT INTO t VALUES (3)", write=True) == "Rows changed: 1."
    with pytest.raises(LimitedError, match="no such table") as caught:
        run(path, "SELECT * FROM nowhere")
    assert caught.value.kind == "OperationalError"
    with pytest.raises(LimitedError, match="there is no SQL statement"):
        run(path, " ")


@pytest.mark.parametrize(
    "value",
    [
        f"length(trim({LONG}, {OTHER}))",
        f"length(ltrim({LONG}, {OTHER}))",
        f"length(rtrim({LONG}, {OTHER}))",
        f"instr({LONGER}, substr({LONGER}, 1, 200000) || 'b')",
        f"replace({LONGER}, substr({LONGER}, 1, 200000) || 'b', 'x')",
        f"{LONGER} LIKE '%' || substr({LONGER}, 1, 40000) || 'b'",
        f"{LONGER} GLOB '*' || substr({LONGER}, 1, 40000) || 'b'",
    ],
)
def test_one_long_step_is_ended_and_other_calls_go_on(path, value):
    with pytest.raises(LimitedError) as caught:
        run(path, f"SELECT {value}", seconds=0.1)
    assert (caught.value.kind, str(caught.value)) == ("CPU time", "it took too long and was stopped")
    assert run(path, "SELECT 1") == "1\n1"


def test_many_steps_are_interrupted(path):
    endless = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(LimitedError) as caught:
        run(path, endless, seconds=0.1)
    assert caught.value.kind == "CPU time"


@pytest.mark.parametrize(
    "sql",
    [
        f"CREATE TEMP TABLE big AS {MANY} SELECT randomblob(1000000) FROM n",
        f"CREATE TABLE temp.big AS {MANY} SELECT randomblob(1000000) FROM n",
        f"{MANY} SELECT randomblob(1000000) AS x FROM n ORDER BY x",
        f"{MANY} SELECT DISTINCT randomblob(1000000) FROM n, n",
        f"{MANY} SELECT group_concat(hex(zeroblob(500000))) FROM n",
        f"WITH big AS MATERIALIZED ({MANY} SELECT randomblob(1000000) AS x FROM n) "
        "SELECT count(*) FROM big a, big b",
        "SELECT " + ", ".join(["randomblob(1000000)"] * 200),
    ],
)
def test_temporary_tables_and_values_count(path, sql):
    with pytest.raises(LimitedError) as caught:
        run(path, sql, write=True)
    assert caught.value.kind in ("MemoryError", "DataError", "OperationalError")
    assert run(path, "SELECT count(*) FROM sqlite_temp_master", write=True) == "count(*)\n0"


def test_small_temporary_tables_work(path):
    sql = "CREATE TEMP TABLE old AS SELECT * FROM t; DELETE FROM t; INSERT INTO t SELECT a + 1 FROM old"
    assert run(path, sql, write=True).endswith("Rows changed: 2.")
    assert run(path, "SELECT a FROM t") == "a\n2\n3"


def test_results_have_a_bound(path):
    wide = ", ".join(["printf('%.*c', 500, 'x')"] * 1500)
    assert len(run(path, f"{MANY} SELECT {wide} FROM n")) < 1_000_000
    columns = "SELECT " + ", ".join(f"1 AS [{'x' * 900}{number}]" for number in range(20))
    assert len(run(path, "; ".join([columns] * 60), write=True)) < 500_000


def test_a_process_that_ends_in_another_way_is_not_a_verdict():
    with pytest.raises(LimitedError) as caught:
        run_limited("os:_exit", 1.0, status=3)
    assert (caught.value.kind, str(caught.value)) == ("process", "its process ended with status 3")


def test_calls_from_many_threads(path):
    results, threads = [], []
    for number in range(12):
        call = lambda number=number: results.append(run(path, f"SELECT {number}"))  # noqa: E731
        threads.append(threading.Thread(target=call))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(f"{number}\n{number}" for number in range(12))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_processes_of_its_own(path):
    run(path, "SELECT 1")
    child = os.fork()
    if child == 0:
        os._exit(run(path, "SELECT 5") != "5\n5")
    assert os.waitpid(child, 0)[1] == 0
    assert run(path, "SELECT 2") == "2\n2"


def test_hostile_calls_do_not_hold_up_others(tmp_path):
    pytest.importorskip("mcp", reason="MCP needs the extra 'mcp'")
    from gem_chat.tools import ToolState, make_tools
    from gem_envs.tools import _loop
    from tests.tools.mcp.servers import ENVIRONMENT

    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE t (a)").connection.close()
    command = f"{sys.executable} -m gem_envs.tools.mcp.sqlite --folder {tmp_path} --seconds 0.2"
    tools = {t.name: t for t in make_tools(f"mcp(command={command!r}, env={ENVIRONMENT!r})")}
    ended = []

    async def use(name, **arguments):
        result = await tools[name].call({"database": "a", **arguments}, ToolState())
        ended.append((name, result.ok))
        return result.text

    async def all_at_once():
        hostile = [use("query", sql=f"SELECT length(trim({LONG}, {OTHER}))") for _ in range(6)]
        return await asyncio.gather(*hostile, use("list_tables"))

    *stopped, tables = _loop.run(all_at_once())
    assert ["took too long" in text for text in stopped] == [True] * 6
    assert tables == "name | type\nt | table"
    assert ended[-1] == ("query", False)
