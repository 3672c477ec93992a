"""Which task an episode of a group plays. Needs no ROLL."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gem_roll.tasks import TRAIN_TASKS, table_of

from gem_core.errors import ConfigError
from gem_core.tasks import EVAL_SEEDS, TRAIN_SEEDS, TaskSource, make_tasks, write_tasks

GUESS, MASTERMIND = TaskSource("game:GuessTheNumber-v0-easy"), TaskSource("game:Mastermind-v0-easy")
CONFIG = SimpleNamespace(seed=7)


def section(**changed: Any) -> Any:
    given = {"tags": ["A", "B"], "num_groups_partition": [3, 2], "max_traj_per_env": 2} | changed
    return SimpleNamespace(**given)


def test_a_step_plays_the_next_rows_of_the_table() -> None:
    table = table_of(CONFIG, section(), "B", MASTERMIND, "train", None)
    tasks = [table.task(group, episode) for episode in range(4) for group in (3, 4)]
    assert [task["index"] for task in tasks] == list(range(8))
    wanted = make_tasks([MASTERMIND], 8, seed=7)
    assert tasks == list(wanted)
    assert all(task["seed"] in TRAIN_SEEDS for task in tasks)
    assert table.task(3, TRAIN_TASKS // 2) == tasks[0]


def test_each_validation_plays_the_same_held_out_tasks() -> None:
    table = table_of(CONFIG, section(), "A", GUESS, "held_out", None)
    first = [table.task(group, episode)["seed"] for episode in (0, 1) for group in range(3)]
    again = [table.task(group, episode)["seed"] for episode in (2, 3) for group in range(3)]
    assert first == again == list(EVAL_SEEDS[:6])


def test_a_file_holds_the_tasks_of_all_tags(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    rows = list(make_tasks([GUESS, MASTERMIND], 20))
    write_tasks(rows, path)
    table = table_of(CONFIG, section(), "A", GUESS, "train", str(path))
    mine = [row for row in rows if row["env_id"] == GUESS.env_id]
    assert [table.task(group, 0) for group in range(3)] == mine[:3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (json.dumps({"env_id": "x"}), "line 1: seed is missing"),
        ("no json", "line 1"),
        (json.dumps({"env_id": "x", "seed": 1}), "has no task of game:GuessTheNumber-v0-easy"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / f"{abs(hash(line))}.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError, match=message):
        table_of(CONFIG, section(), "A", GUESS, "train", str(path))


def test_a_tag_stands_once_in_a_section() -> None:
    with pytest.raises(ConfigError, match="stands 2 times"):
        table_of(CONFIG, section(tags=["A", "A"]), "A", GUESS, "train", None)
