"""Grading compares what a database holds and does, not how it is declared, and refuses wrong mutants."""

from __future__ import annotations

import re

import pytest

from gem_envs._databases.task import TASKS, build, change, differences, unlike_solution
from tests.mutants.databases import EQUIVALENT, changed_scripts, judged

SOURCE = TASKS.choose()


def wrong(tmp_path, task, script):
    path = tmp_path / "found.db"
    build(path, task.setup)
    change(path, script)
    return unlike_solution(path, task)


def task_named(name, seed=0):
    return SOURCE.task(SOURCE.names.index(name), seed)


@pytest.mark.once
@pytest.mark.parametrize("name", SOURCE.names)
def test_no_wrong_mutant_is_paid(name, tmp_path):
    task = task_named(name)
    verdicts = judged(name, task, tmp_path)
    assert (len(verdicts) >= 3) == (task.answer is None)
    assert [kind for kind, paid in verdicts.items() if paid] == []
    assert set(EQUIVALENT.get(name, ())) <= {kind for kind, _ in changed_scripts(task.solution)}


ROOMS = (
    "CREATE TABLE rooms (id INTEGER PRIMARY KEY, name TEXT NOT NULL {}, seats INTEGER NOT NULL {}, "
    "course_id INTEGER {});"
)
BOUNDS, KEY = "CHECK (seats >= {low} AND seats <= {high})", "REFERENCES courses(id)"
LOUD = "SELECT RAISE(ABORT, 'no'); END;"
ROOMS_RIGHT = {
    "index": ROOMS.format("", BOUNDS, KEY) + "CREATE UNIQUE INDEX i ON rooms(name);",
    "index with a condition": ROOMS.format("", BOUNDS, KEY)
    + "CREATE UNIQUE INDEX i ON rooms(name) WHERE name IS NOT NULL;",
    "constraint of the table": ROOMS.format("", BOUNDS, KEY).replace(");", ", UNIQUE (name));"),
    "triggers": ROOMS.format("", BOUNDS, KEY)
    + "CREATE TRIGGER a BEFORE INSERT ON rooms WHEN new.name IN (SELECT name FROM rooms) BEGIN " + LOUD
    + "CREATE TRIGGER b BEFORE UPDATE ON rooms WHEN new.name IN (SELECT name FROM rooms WHERE id <> old.id) "
    + "BEGIN " + LOUD,
    "another index": ROOMS.format("UNIQUE", BOUNDS, KEY) + "CREATE INDEX i ON rooms(seats);",
}  # fmt: skip
ROOMS_WRONG = {
    "plain index": ROOMS.format("", BOUNDS, KEY) + "CREATE INDEX i ON rooms(name);",
    "other column": ROOMS.format("", BOUNDS, KEY) + "CREATE UNIQUE INDEX i ON rooms(id);",
    "two columns": ROOMS.format("", BOUNDS, KEY) + "CREATE UNIQUE INDEX i ON rooms(name, seats);",
    "no letter case": ROOMS.format("", BOUNDS, KEY) + "CREATE UNIQUE INDEX i ON rooms(name COLLATE NOCASE);",
    "one course a room": ROOMS.format("UNIQUE", BOUNDS, KEY + " UNIQUE"),
    "same seats once": ROOMS.format("UNIQUE", "UNIQUE " + BOUNDS, KEY),
    "only on insert": ROOMS.format("", BOUNDS, KEY)
    + "CREATE TRIGGER a BEFORE INSERT ON rooms WHEN new.name IN (SELECT name FROM rooms) BEGIN " + LOUD,
    "one seat more": ROOMS.format("UNIQUE", BOUNDS.replace("<= {high}", "<= {high} + 1"), KEY),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("scripts", "right"), [(ROOMS_RIGHT, True), (ROOMS_WRONG, False)])
def test_rules_of_a_table_are_compared_by_what_they_refuse(scripts, right, seed, tmp_path):
    task = task_named("rooms", seed)
    prefix = re.match(r"Put (\w+_) before", task.instruction)[1]
    low, high = re.search(r"fewer than (\d+) or more than (\d+) seats", task.instruction).groups()
    for name, script in scripts.items():
        script = (
            re.sub(r"\b(rooms|courses)\b", rf"{prefix}\1", script)
            .replace("{low}", low)
            .replace("{high}", high)
        )
        assert (wrong(tmp_path, task, script) == []) == right, name


TRIGGER = (
    "CREATE TRIGGER t {} ON patients {} BEGIN INSERT INTO phone_log VALUES (old.id, old.phone, new.phone); "
    "END;"
)
PHONES_RIGHT = (
    TRIGGER.format("AFTER UPDATE OF phone", "WHEN old.phone IS NOT new.phone"),
    TRIGGER.format("AFTER UPDATE", "WHEN new.phone IS NOT old.phone"),
    TRIGGER.format("BEFORE UPDATE OF phone", "WHEN old.phone IS NOT new.phone"),
    TRIGGER.format("AFTER UPDATE", "WHEN NOT (old.phone IS new.phone)"),
    TRIGGER.format(
        "AFTER UPDATE",
        "WHEN old.phone <> new.phone OR (old.phone IS NULL) <> (new.phone IS NULL)",
    ),
)
PHONES_WRONG = (
    TRIGGER.format("AFTER UPDATE OF phone", "WHEN old.phone <> new.phone OR new.phone IS NULL"),
    TRIGGER.format("AFTER UPDATE OF phone", "WHEN old.phone <> new.phone OR old.phone IS NULL"),
    TRIGGER.format(
        "AFTER UPDATE OF phone", "WHEN old.phone <> new.phone OR old.phone IS NULL OR new.phone IS NULL"
    ),
    TRIGGER.format("AFTER UPDATE OF phone", "WHEN old.phone <> new.phone"),
    TRIGGER.format("AFTER UPDATE OF phone", ""),
    TRIGGER.format("AFTER UPDATE OF name", "WHEN old.phone IS NOT new.phone"),
    TRIGGER.format("AFTER UPDATE", "WHEN coalesce(old.phone, '') <> coalesce(new.phone, '')"),
    TRIGGER.format("AFTER UPDATE", "WHEN old.phone IS NOT new.phone AND new.id = 1"),
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("scripts", "right"), [(PHONES_RIGHT, True), (PHONES_WRONG, False)])
def test_a_trigger_is_compared_on_every_change_from_and_to_null(scripts, right, seed, tmp_path):
    task = task_named("phone_log", seed)
    prefix = re.match(r"Put (\w+_) before", task.instruction)[1]
    for script in scripts:
        script = re.sub(r"\b(patients|phone_log)\b", rf"{prefix}\1", script)
        assert (wrong(tmp_path, task, script) == []) == right, script


def test_unique_keys_of_existing_tables_are_compared_and_other_indexes_are_not(tmp_path):
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    build(one, "CREATE TABLE t (a, b);")
    build(other, "CREATE TABLE t (a, b); CREATE INDEX i ON t(a);")
    assert differences(one, other) == []
    build(other, "CREATE TABLE t (a, b); CREATE UNIQUE INDEX i ON t(a);")
    assert differences(one, other) == ["unique keys of t"]
    assert differences(one, other, tables=()) == []
    build(one, "CREATE TABLE t (a UNIQUE, b);")
    assert differences(one, other) == []
    build(one, "CREATE TABLE t (a, b, UNIQUE (a, b));")
    assert differences(one, other) == ["unique keys of t"]
    build(one, "CREATE TABLE t (a, b); CREATE UNIQUE INDEX i ON t(a) WHERE b;")
    assert differences(one, other) == ["unique keys of t"]


def test_a_trigger_that_nobody_asked_for_is_a_difference(tmp_path):
    task = task_named("restock")
    table = re.search(r"CREATE TABLE (\w+_products)", task.setup)[1]
    trigger = f"CREATE TRIGGER t AFTER UPDATE ON {table} BEGIN DELETE FROM {table}; END;"
    assert wrong(tmp_path, task, task.solution) == []
    assert wrong(tmp_path, task, task.solution + trigger) == [f"triggers of {table}"]
