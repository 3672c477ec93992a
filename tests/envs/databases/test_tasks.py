"""Every task: grading accepts its reference solution and rejects near misses, and no two tasks are alike."""

from __future__ import annotations

import re
import sqlite3

import pytest

from gem_envs import _drawn as words
from gem_envs._databases.task import TASKS, DatabaseTask, build, change, differences, opened, with_prefix

SOURCE = TASKS.choose()
EVERY = pytest.mark.parametrize("index", range(len(SOURCE)), ids=SOURCE.names)


def test_there_are_enough_items():
    assert len(SOURCE) >= 20
    assert all(len(TASKS.makers[group]) >= 4 for group in TASKS.groups)


def test_no_two_are_alike():
    drawn = "|".join((*words.PEOPLE, *words.THINGS, *words.PLACES))
    shapes = []
    for index in range(len(SOURCE)):
        text = re.sub(rf"\d+|\b(?:{drawn})\b", "#", SOURCE.task(index, 0).instruction, flags=re.IGNORECASE)
        shapes.append(set(re.findall(r"\w+", text.lower())))
    for place, one in enumerate(shapes):
        for other in shapes[:place]:
            assert len(one & other) / len(one | other) < 0.5, (sorted(one), sorted(other))


@EVERY
def test_seeds_draw_names_and_numbers(index):
    assert len({SOURCE.task(index, seed).setup for seed in range(5)}) == 5
    assert SOURCE.task(index, 3) == SOURCE.task(index, 3)


@EVERY
def test_grading_accepts_the_solution_and_rejects_similar_ones(index, tmp_path):
    found, wanted = tmp_path / "found.db", tmp_path / "wanted.db"
    for seed in range(2):
        task = SOURCE.task(index, seed)
        for path in (found, wanted):
            build(path, task.setup)
            change(path, task.solution)
        assert differences(found, wanted, task.probes) == []
        assert task.wrong
        for script in task.wrong:
            build(found, task.setup)
            change(found, script)
            assert differences(found, wanted, task.probes) != [], script
        build(found, task.setup)
        if task.answer is None:
            assert differences(found, wanted, task.probes) != []
        else:
            assert task.answer not in task.wrong_answers
            with opened(found) as link:
                (row,) = link.execute(task.solution)
            assert " ".join(map(str, row)) == task.answer


@EVERY
def test_the_sql_of_another_seed_does_not_solve_a_task(index, tmp_path):
    found, wanted = tmp_path / "found.db", tmp_path / "wanted.db"
    one, other = SOURCE.task(index, 0), SOURCE.task(index, 2)
    for path in (found, wanted):
        build(path, one.setup)
    change(wanted, one.solution)
    prefix = re.match(
        r"Put (\w\d_) before every name of a table or view below, as in (\w+)\. ", one.instruction
    )
    assert prefix[2].startswith(prefix[1])
    with opened(found) as link:
        names = [name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert prefix[2] in names
    assert all(name.startswith(prefix[1]) for name in names)
    if SOURCE.names[index] in ("order_values", "monthly_fuel", "rooms"):  # they only create something
        change(found, other.solution)
        assert differences(found, wanted, one.probes) != []
    else:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            change(found, other.solution)


def test_a_prefix_is_for_tables_and_views_only():
    task = DatabaseTask(
        "Make a view sums.",
        "CREATE TABLE trips (day, km); INSERT INTO trips VALUES ('trips', 1);",
        "CREATE VIEW sums AS SELECT count(*) AS trips, trips.day FROM trips;",
        ("DELETE FROM trips;",),
        probes=("SELECT * FROM sums;",),
    )
    found = with_prefix(task, "k7_")
    assert found.instruction.startswith(
        "Put k7_ before every name of a table or view below, as in k7_trips. M"
    )
    assert found.setup == "CREATE TABLE k7_trips (day, km); INSERT INTO k7_trips VALUES ('trips', 1);"
    assert found.solution == ("CREATE VIEW k7_sums AS SELECT count(*) AS trips, k7_trips.day FROM k7_trips;")
    assert (found.wrong, found.probes) == (("DELETE FROM k7_trips;",), ("SELECT * FROM k7_sums;",))


def test_rows_in_another_order_and_whole_fractions_are_the_same(tmp_path):
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    build(one, "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (2, NULL);")
    build(other, "CREATE TABLE t (a REAL, b TEXT); INSERT INTO t VALUES (2, NULL), (1, 'x');")
    assert differences(one, other) == []
    build(other, "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x'), (2, 'NULL');")
    assert differences(one, other) == ["table t"]
    build(
        other, "CREATE TABLE t (b, a); INSERT INTO t VALUES ('x', 1), (NULL, 2); CREATE VIEW v AS SELECT 1;"
    )
    assert differences(one, other) == ["table t", "view v"]
