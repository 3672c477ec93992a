"""Tasks in a trainer's data: reading task files, checking tasks once, and selecting evaluation tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from gem_core._core import Split
from gem_core._tasks import (
    EnvChoice,
    TaskRow,
    check_train_row,
    count_items,
    evaluation_tasks,
    make_tasks,
    read_task,
    tasks_per_epoch,
)
from gem_core._util.checks import check_choice, expected
from gem_core._util.foreign_json import read_json
from gem_core._util.forks import ForkSafeLock
from gem_core.errors import ConfigError, GemError

TRAIN_TASKS = 10_000
"""Default number of training tasks for environments without items."""
EVAL_TASKS = 256
"""Default number of evaluation tasks."""

_built: set[tuple[str, str]] = set()
"""Environments, with their wrappers, that this process has already built once."""
_building = ForkSafeLock()


def pack_task(task: TaskRow) -> dict[str, Any]:
    """Return the fields of a task for a table whose columns have the same type in all rows.

    Keyword arguments are encoded as JSON.
    """
    return {
        "env_id": task["env_id"],
        "env_kwargs": json.dumps(task["env_kwargs"], sort_keys=True),
        "seed": task["seed"],
        "index": task["index"],
        "item": task.get("item"),
    }


def unpack_task(fields: Mapping[str, Any] | None, remedy: str) -> TaskRow:
    """Return the task in the column ``extra_info`` of a row.

    Args:
        fields: Fields that `pack_task` returned; None if the row has no such column.
        remedy: How to generate the data, for the message.

    Raises:
        ConfigError: The row names no environment.
    """
    try:
        return read_task(fields or {})
    except ConfigError as error:
        raise ConfigError(f"extra_info of a dataset row: {error}; generate the data with {remedy}") from None


def read_tasks(path: str | Path, read: Callable[[Any], TaskRow]) -> Iterator[tuple[str, TaskRow]]:
    """Read the tasks of a JSON Lines file.

    Args:
        path: Path of the file.
        read: Function that returns the task of a row, or raises a `GemError`, ValueError, or AttributeError.

    Yields:
        Location of the task, such as ``"tasks.jsonl, line 3"``, and the task.

    Raises:
        ConfigError: A line cannot be read; the message names the line.
    """
    with open(path, "rb") as file:  # as bytes, which may begin with a byte order mark
        lines = ((f"{path}, line {n}", line) for n, line in enumerate(file, start=1) if line.strip())
        yield from read_rows(lines, lambda line: read(read_json(line)))


def read_rows(
    rows: Iterable[tuple[str, Any]], read: Callable[[Any], TaskRow]
) -> Iterator[tuple[str, TaskRow]]:
    """Read the tasks of rows.

    Args:
        rows: Location of each row, for messages, and the row.
        read: As in `read_tasks`.

    Yields:
        Location of the task, and the task.

    Raises:
        ConfigError: A row cannot be read; the message names the location.
    """
    for place, row in rows:
        try:
            task = read(row)
        except (GemError, ValueError, AttributeError) as error:
            raise ConfigError(f"{place}: {error}") from error
        yield place, task


def check_tasks(
    tasks: Iterable[tuple[str, TaskRow]],
    wrappers: str = "",
    *,
    no_images: str | Callable[[], str | None] | None = None,
    for_training: bool,
) -> int:
    """Build every environment of the tasks once per process, so that mistakes are reported before a run.

    Args:
        tasks: Location of each task, or an empty string, and the task.
        wrappers: Wrappers around every environment.
        no_images: Reason why the trainer or its model does not accept images, or a function that returns the
            reason; None if images are accepted.
        for_training: Whether to reject tasks with evaluation items.

    Returns:
        Number of tasks.

    Raises:
        GemError: An environment cannot be built, its images cannot be shown, or a task is rejected. An error
            in a task with a location is a `ConfigError` that names the location.
    """
    count = 0
    for place, task in tasks:
        count += 1
        try:
            check_environment(EnvChoice.of(task), wrappers, no_images=no_images)
            if for_training:
                check_train_row(task)
        except GemError as error:
            if not place:
                raise
            raise ConfigError(f"{place}: {error}") from error
    return count


def check_environment(
    source: EnvChoice, wrappers: str = "", *, no_images: str | Callable[[], str | None] | None = None
) -> None:
    """Build an environment, unless this process has already built an equal one; thread-safe.

    Args:
        source: Environment to build.
        wrappers: Wrappers around the environment.
        no_images: As in `check_tasks`.

    Raises:
        GemError: The environment cannot be built, or its images cannot be shown.
    """
    with _building:
        if (source.label, wrappers) not in _built:
            source.check_buildable(wrappers, no_images=no_images)
            _built.add((source.label, wrappers))


def split_tasks(
    envs: str | Iterable[str],
    split: Split,
    number: int | None = None,
    *,
    seed: int = 0,
    no_images: str | None = None,
) -> list[TaskRow]:
    """Return the training or the evaluation tasks of a mix of environments, which never share a task.

    Args:
        envs: Environments, each ``ID``, ``ID=WEIGHT``, or ``ID(key=value, ...)=WEIGHT``.
        split: Which tasks to return.
        number: Number of tasks. None means `EVAL_TASKS` for evaluation. For training it means `TRAIN_TASKS`,
            or the number that plays every item once (`tasks_per_epoch`) if that is larger or if all
            environments have items.
        seed: Random seed of training tasks; evaluation tasks are always the same.
        no_images: As in `check_tasks`.

    Raises:
        GemError: An environment cannot be built, or has no items for training.
    """
    listed = [envs] if isinstance(envs, str) else envs
    if isinstance(listed, Mapping) or not isinstance(listed, Iterable) or not (listed := list(listed)):
        raise expected("envs", envs, "one environment or more, such as 'game:Wordle-v0=2'")
    check_choice("split", split, get_args(Split))
    sources = [EnvChoice.parse(env) for env in listed]
    for source in sources:
        source.check_buildable(no_images=no_images)
    if split == "eval":
        return evaluation_tasks(sources, EVAL_TASKS if number is None else number)
    if number is None:
        number = tasks_per_epoch(sources) or 0
        if any(count_items(source, "train") is None for source in sources):
            number = max(number, TRAIN_TASKS)
    return list(make_tasks(sources, number, seed=seed))
