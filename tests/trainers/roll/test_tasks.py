"""The tasks that the episodes of a group play. Needs no ROLL."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gem_roll._tasks import table_of

from gem_core._tasks import TRAIN_SEEDS, count_items
from gem_core.errors import ConfigError
from gem_core.tasks import EVAL_SEEDS, EnvChoice, TaskRow, make_tasks, write_tasks
from tests.trainers.items import KINDS, check_epochs, check_eval_tasks, source_of

GUESS, MASTERMIND = EnvChoice("game:GuessTheNumber-v0-easy"), EnvChoice("game:Mastermind-v0-easy")
CONFIG = SimpleNamespace(seed=7)


def section(**changed: Any) -> Any:
    given = {"tags": ["A", "B"], "num_groups_partition": [3, 2], "max_traj_per_env": 2} | changed
    return SimpleNamespace(**given)


def test_a_step_plays_the_next_rows_of_the_table() -> None:
    table = table_of(CONFIG, section(), "B", MASTERMIND, "train", None)
    tasks = [table(group, episode) for episode in range(4) for group in (3, 4)]
    assert [task["index"] for task in tasks] == list(range(8))
    wanted = make_tasks([MASTERMIND], 8, seed=7)
    assert tasks == list(wanted)
    assert all(task["seed"] in TRAIN_SEEDS for task in tasks)
    far = [table(3, episode)["seed"] for episode in range(5_000, 6_000)]
    assert len(set(far)) == 1_000  # the tasks do not end


def test_each_validation_plays_the_same_tasks() -> None:
    table = table_of(CONFIG, section(), "A", GUESS, "eval", None)
    first = [table(group, episode)["seed"] for episode in (0, 1) for group in range(3)]
    again = [table(group, episode)["seed"] for episode in (2, 3) for group in range(3)]
    assert first == again == list(EVAL_SEEDS[:6])


def test_a_file_holds_the_tasks_of_all_tags(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    rows = list(make_tasks([GUESS, MASTERMIND], 20))
    write_tasks(rows, path)
    table = table_of(CONFIG, section(), "A", GUESS, "train", str(path))
    mine = [row for row in rows if row["env_id"] == GUESS.env_id]
    assert [table(group, 0) for group in range(3)] == mine[:3]


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


def test_a_tag_appears_once_in_a_section() -> None:
    with pytest.raises(ConfigError, match="is in tags 2 times"):
        table_of(CONFIG, section(tags=["A", "A"]), "A", GUESS, "train", None)


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_plays_every_item_once(tmp_path: Path, kind: str) -> None:
    source = source_of(kind, tmp_path)
    items, num_eval = (count_items(source, split) or 0 for split in ("train", "eval"))
    table = table_of(CONFIG, section(), "B", source, "train", None)
    tasks = [table(group, episode) for episode in range(items) for group in (3, 4)]
    check_epochs(source, tasks)
    one = section(num_groups_partition=[1, 1], max_traj_per_env=num_eval)
    table = table_of(CONFIG, one, "A", source, "eval", None)
    check_eval_tasks(source, [table(0, episode) for episode in range(num_eval)])
    assert table(0, num_eval) == table(0, 0)
    with pytest.raises(ConfigError, match="lower val_batch_size"):
        table_of(CONFIG, section(max_traj_per_env=num_eval), "A", source, "eval", None)


def test_the_items_of_a_file_match_its_rows(tmp_path: Path) -> None:
    source, path = source_of("generated", tmp_path), tmp_path / "val.jsonl"
    rows: list[TaskRow] = list(make_tasks([source], 40, split="eval"))
    write_tasks(rows, path)
    table = table_of(CONFIG, section(), "A", source, "eval", str(path))
    assert [table(group, 0) for group in range(3)] == rows[:3]


def test_a_file_of_evaluation_items_is_not_trained_on(tmp_path: Path) -> None:
    source, path = source_of("service", tmp_path), tmp_path / "val.jsonl"
    write_tasks(make_tasks([source], 4, split="eval"), path)
    with pytest.raises(ConfigError, match="is for evaluation only"):
        table_of(CONFIG, section(), "A", source, "train", str(path))
