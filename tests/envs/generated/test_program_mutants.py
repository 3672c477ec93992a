"""The tests of small programming tasks refuse every mutant of the solution that differs on some input."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

import gem_core
from gem_envs._generated.program_tasks import TASKS
from gem_envs._generated.programs import ProgramRows
from tests.mutants.programs import judged
from tests.mutants.python_source import mutants, output

ROWS = ProgramRows(False, 1, "train", 100_000, 0)


def skeleton(text):
    return re.sub(r"\d+|\{\w\}", "#", text)


def rows_of(task, count):
    """Return the first rows of a task."""
    found = (ROWS[index] for index in range(10_000))
    rows = []
    for row in found:
        if skeleton(row["problem"]) == skeleton(task.text):
            rows.append(row)
            if len(rows) == count:
                return rows
    raise AssertionError(f"too few rows of {task.text}")


@pytest.mark.once
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.text[:60])
def test_no_mutant_is_paid(task):
    for row in rows_of(task, 2):
        refused, paid = judged(row)
        assert paid == []
        assert len(refused) >= 3


@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        ("base", lambda s: s.replace("(r or '0')", "r")),
        ("base", lambda s: s.replace("x < 0", "x < -999")),
        ("longer than", lambda s: s.replace(" or ['none']", "")),
        ("at a distance", lambda s: s.replace(" or ['none']", "")),
        ("at least", lambda s: s.replace(" or 'none'", "")),
        ("first position", lambda s: s.replace(", 0))", ", -1))")),
        ("longer than", lambda s: re.sub(r"> (\d+)", r">= \1", s)),
        ("Reverse every word", lambda s: re.sub(r"> (\d+)", r">= \1", s)),
        ("how many are above", lambda s: re.sub(r"> (\d+)", r">= \1", s)),
        ("squares", lambda s: re.sub(r"< (\d+)", r"<= \1", s)),
        ("at a distance", lambda s: re.sub(r"<= (\d+)", r"< \1", s)),
        ("at least", lambda s: re.sub(r">= (\d+)", r"> \1", s)),
        ("falling order", lambda s: s.replace("sorted(a, reverse=True)", "sorted(a, key=str, reverse=True)")),
        ("falling order", lambda s: s.replace("sorted(a,", "sorted(set(a),")),
        ("largest number", lambda s: s.replace("int(p[1])", "p[1]", 1)),
        ("largest number", lambda s: s.replace("max(r,", "max(r[::-1],")),
        ("remainder", lambda s: s.replace("int(input()) %", "__import__('math').fmod(int(input()),") + ")"),
    ],
)  # fmt: skip
def test_branches_and_boundaries_are_tested(task, wrong):
    (kind,) = [one for one in TASKS if task in one.text][:1]
    for row in rows_of(kind, 2):
        changed = wrong(row["solution"])
        assert changed != row["solution"]
        tests = json.loads(row["tests"])
        assert any(
            output(changed, text) != output(row["solution"], text) for text in tests["inputs"]
        ), changed  # fmt: skip


def test_the_rewards_of_programs_without_a_branch():
    env = gem_core.make("code:SmallTasks-v0")
    index = next(n for n in range(1000) if "longer than" in env.unwrapped.rows[n]["problem"])
    k = int(re.search(r"longer than (\d+)", env.unwrapped.rows[index]["problem"])[1])
    for program, reward in (
        (f"print(*[w for w in input().split() if len(w) > {k}] or ['none'])", 1.0),
        (f"print(*[w for w in input().split() if len(w) > {k - 1}] or ['none'])", 0.0),
        (f"print(*[w for w in input().split() if len(w) > {k}])", 0.0),
    ):
        env.reset(options={"index": index})
        assert env.step(f"```python\n{program}\n```")[1] == reward


@pytest.mark.parametrize(("easy", "split"), [(False, "train"), (True, "train"), (False, "test")])
def test_all_kinds_are_drawn_equally_often(easy, split):
    rows = ProgramRows(easy, 1, split, 100_000, 0)
    size = 60 * len(rows.tasks)
    counts = Counter(skeleton(rows[index]["problem"]) for index in range(size))
    assert len(counts) >= 0.85 * len(rows.tasks)  # few texts of some kinds may all be in the other split
    fair = size / len(counts)
    assert 0.5 * fair < min(counts.values()) <= max(counts.values()) < 1.6 * fair


def test_outputs_of_an_item_are_not_all_the_same():
    for index in range(300):
        assert len(set(json.loads(ROWS[index]["tests"])["outputs"])) > 1


def test_mutants_change_every_part_of_a_program():
    found = mutants("print(*[w for w in input().split() if len(w) > 3] or ['none'])")
    texts = set(found.values())
    for part in ("> 4", "> 2", ">= 3", "[w for w in input().split()] or", "print(*['none'])", "['']", "< 3"):
        assert any(part in text for text in texts), part
