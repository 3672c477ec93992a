"""Items of every kind in the rows of each plugin; needs no trainer, so reasoning-gym is included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("reasoning_gym")

from gem_oat._tasks import task_prompts
from gem_openrlhf._labels import openrlhf_row
from gem_openrlhf._labels import task_of as openrlhf_task
from gem_rl2._rows import rl2_row
from gem_rl2._rows import task_of as rl2_task
from gem_trl._dataset import prompt_task, task_prompt
from gem_verl._rows import task_of as verl_task
from gem_verl._rows import verl_row

from gem_core._tasks import count_items
from gem_core.tasks import EnvChoice, TaskRow, make_tasks, read_task, write_tasks
from gem_core.trainers import read_tasks
from tests.trainers.items import KINDS, check_epochs, source_of

Through: Any = Callable[[EnvChoice, int, Path], list[TaskRow]]


def through_rows(row: Callable[[TaskRow], Any], task: Callable[[Any], TaskRow]) -> Through:
    def read(source: EnvChoice, tasks: int, folder: Path) -> list[TaskRow]:
        return [task(row(made)) for made in make_tasks([source], tasks)]

    return read


def through_oat(source: EnvChoice, tasks: int, folder: Path) -> list[TaskRow]:
    data = task_prompts([source], tasks, seed=0)
    return [read_task(json.loads(data[index][1])) for index in range(tasks)]


def through_roll(source: EnvChoice, tasks: int, folder: Path) -> list[TaskRow]:
    write_tasks(make_tasks([source], tasks), folder / "tasks.jsonl")
    return [task for _, task in read_tasks(folder / "tasks.jsonl", read_task)]


PLUGINS: dict[str, Through] = {
    "verl": through_rows(verl_row, verl_task),
    "openrlhf": through_rows(openrlhf_row, lambda row: openrlhf_task(row["label"])),
    "oat": through_oat,
    "rl2": through_rows(rl2_row, lambda row: rl2_task(row["extra_info"])),
    "roll": through_roll,
    "trl": through_rows(task_prompt, lambda row: prompt_task(row["prompt"])),
}


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("kind", KINDS)
def test_two_epochs_play_every_item_twice(tmp_path: Path, kind: str, plugin: str) -> None:
    source = source_of(kind, tmp_path)
    items = count_items(source, "train")
    assert items
    check_epochs(source, PLUGINS[plugin](source, 2 * items, tmp_path))
