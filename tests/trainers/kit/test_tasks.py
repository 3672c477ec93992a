"""Tasks in a trainer's data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gem_core import register
from gem_core._core import Split
from gem_core._tasks import TRAIN_SEEDS
from gem_core.errors import ConfigError, UnknownEnv
from gem_core.tasks import EVAL_SEEDS, EnvChoice, TaskRow, make_tasks, read_task
from gem_core.trainers import pack_task, read_tasks, unpack_task
from gem_core.trainers._tasks import check_tasks, evaluation_tasks, split_tasks
from tests.support import ImageEnv, ScriptedEnv

SPLITS: tuple[Split, ...] = ("train", "eval")
GUESS = EnvChoice("game:GuessTheNumber-v0-easy")


class Counted(ScriptedEnv):
    built = 0

    def __init__(self, **kwargs: Any) -> None:
        Counted.built += 1
        super().__init__(**kwargs)


class Numbered(ScriptedEnv):
    """An environment with 40 items for training, and 10 for evaluation."""

    def items(self, split: Split) -> range:
        return range(40) if split == "train" else range(40, 50)


register("test:KitCounted", Counted)
register("test:KitShown", ImageEnv)
register("test:KitNumbered", Numbered)


def task(env_id: str, **kwargs: Any) -> TaskRow:
    return TaskRow(env_id=env_id, env_kwargs=kwargs, seed=1_000_000, index=0, item=None)


def test_a_task_travels_in_a_column() -> None:
    row = task("math:Arithmetic-v0", size=5)
    fields = pack_task(row)
    assert fields["env_kwargs"] == '{"size": 5}'
    assert unpack_task(fields, "the exporter") == row
    for wrong in (None, {"seed": 1}):
        with pytest.raises(ConfigError, match=r"extra_info .* env_id is missing; generate the data with the"):
            unpack_task(wrong, "the exporter")


def test_a_file_of_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    tasks = list(make_tasks([GUESS], 3, seed=1))
    path.write_text("".join(json.dumps(row) + "\n" for row in tasks))
    assert list(read_tasks(path, read_task)) == [
        (f"{path}, line {number}", row) for number, row in enumerate(tasks, start=1)
    ]


def test_a_file_of_tasks_may_come_from_windows_and_have_empty_lines(tmp_path: Path) -> None:
    path, rows = tmp_path / "tasks.jsonl", [task(GUESS.env_id, seed=seed) for seed in (1, 2)]
    path.write_bytes(
        b"\xef\xbb\xbf" + b"\r\n\r\n".join(json.dumps(row).encode() for row in rows) + b"\r\n\r\n"
    )
    assert list(read_tasks(path, read_task)) == [
        (f"{path}, line {1 + 2 * number}", row) for number, row in enumerate(rows)
    ]


def test_a_file_of_tasks_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(2 * f"{json.dumps(task(GUESS.env_id))}\n", encoding="utf-16")
    with pytest.raises(ConfigError, match=r"tasks\.jsonl, line 1: "):
        list(read_tasks(path, read_task))


@pytest.mark.parametrize(
    ("line", "message"), [("{", "line 2: "), ("{}", "line 2: env_id is missing"), ("[]", "line 2: ")]
)
def test_a_line_that_cannot_be_read_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(task(GUESS.env_id)) + f"\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        list(read_tasks(path, read_task))


def test_each_environment_is_built_once() -> None:
    rows = [("", task("test:KitCounted")), ("", task("test:KitCounted", truncate=True))]
    assert check_tasks([*rows, *rows], for_training=True) == 4
    assert Counted.built == 2
    check_tasks(rows, "time_limit(max_turns=5)", for_training=True)
    assert Counted.built == 4


def test_a_wrong_task_is_named_with_its_position() -> None:
    wrong = task("game:GuesTheNumber-v0")
    with pytest.raises(UnknownEnv, match="GuessTheNumber"):
        check_tasks([("", wrong)], for_training=False)
    with pytest.raises(ConfigError, match=r"rows, line 7: .*GuessTheNumber"):
        check_tasks([("rows, line 7", wrong)], for_training=False)
    assert check_tasks([], for_training=True) == 0


def test_a_training_task_without_an_item_is_rejected(tmp_path: Path) -> None:
    pytest.importorskip("math_verify", reason="needs the extra 'math'")
    data = tmp_path / "rows.jsonl"
    data.write_text(
        "".join(json.dumps({"problem": f"{n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(9))
    )
    row = task("math:GSM8K", dataset_name=str(data), split=None)
    assert check_tasks([("", row)], for_training=False) == 1
    with pytest.raises(ConfigError, match="line 1: the row names no item"):
        check_tasks([("line 1", row)], for_training=True)


def test_a_training_task_with_an_evaluation_item_is_rejected(tmp_path: Path) -> None:
    pytest.importorskip("math_verify", reason="needs the extra 'math'")
    data = tmp_path / "rows.jsonl"
    data.write_text(
        "".join(json.dumps({"problem": f"{n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(40))
    )
    source = EnvChoice("math:GSM8K", {"dataset_name": str(data), "split": None})
    for_training = {row["item"] for row in make_tasks([source], 200, seed=0)}
    assert 0 < len(for_training) < 40
    for item in range(40):
        rows = [(f"line {item}", TaskRow(**{**task(source.env_id, **source.env_kwargs), "item": item}))]
        assert check_tasks(rows, for_training=False) == 1
        if item in for_training:
            assert check_tasks(rows, for_training=True) == 1
            continue
        with pytest.raises(
            ConfigError, match=f"line {item}: item {item} of math:GSM8K.* is for evaluation only"
        ):
            check_tasks(rows, for_training=True)


def test_evaluation_tasks_are_shared_evenly() -> None:
    rows = evaluation_tasks([GUESS, EnvChoice("game:Mastermind-v0-easy")], 5, repeat=2)
    assert [row["env_id"] for row in rows] == [GUESS.env_id] * 4 + ["game:Mastermind-v0-easy"] * 4
    assert all(row["seed"] in EVAL_SEEDS for row in rows)
    assert len(evaluation_tasks([EnvChoice(GUESS.env_id, {"max_turns": n}) for n in (1, 2, 3)], 1)) == 3
    assert rows == evaluation_tasks([GUESS, EnvChoice("game:Mastermind-v0-easy")], 5, repeat=2)


def test_the_default_number_of_tasks() -> None:
    rows = split_tasks(GUESS.env_id, "train")
    assert len(rows) == 10_000
    assert {row["env_id"] for row in rows} == {GUESS.env_id}
    assert len(split_tasks([GUESS.env_id], "eval")) == 256
    assert len(split_tasks("test:KitNumbered", "train")) == 40
    assert sorted(str(row["item"]) for row in split_tasks("test:KitNumbered", "train")) == sorted(
        map(str, range(40))
    )
    assert len(split_tasks("test:KitNumbered", "eval")) == 10
    rare = split_tasks([f"{GUESS.env_id}=300", "test:KitNumbered"], "train")
    assert len(rare) == 40 * 301  # so that every item comes up once on average
    mixed = split_tasks([f"{GUESS.env_id}=3", "test:KitNumbered"], "train")
    assert len(mixed) == 10_000
    assert {row["env_id"] for row in mixed} == {GUESS.env_id, "test:KitNumbered"}


def test_training_tasks_follow_the_seed_and_evaluation_tasks_do_not() -> None:
    train, held_out = (
        [split_tasks([GUESS.env_id], split, 5, seed=seed) for seed in (0, 1)] for split in ("train", "eval")
    )
    assert train[0] != train[1]
    assert held_out[0] == held_out[1]
    assert train[0] == list(make_tasks([GUESS], 5, seed=0))
    assert [len(rows) for rows in (*train, *held_out)] == [5] * 4
    assert all(row["seed"] in TRAIN_SEEDS for rows in train for row in rows)
    assert all(row["seed"] in EVAL_SEEDS for row in held_out[0])


def test_images_are_rejected_where_the_model_takes_none() -> None:
    shown = ("line 1", task("test:KitShown"))
    message = "test:KitShown shows images, but it is blind"
    for split in SPLITS:
        with pytest.raises(ConfigError, match=message):
            split_tasks("test:KitShown", split, 1, no_images="it is blind")
        assert len(split_tasks("test:KitShown", split, 1)) == 1
    for reason in ("it is blind", lambda: "it is blind"):
        with pytest.raises(ConfigError, match=f"line 1: {message}"):
            check_tasks([shown], no_images=reason, for_training=True)
    assert check_tasks([shown], no_images=lambda: None, for_training=True) == 1
