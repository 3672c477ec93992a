"""Tasks in a trainer's data: reading a file of them, checking them once, choosing those of an evaluation."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import ConfigError, GemError
from gem_core.tasks import EnvChoice, TaskRow, check_train_row, make_tasks, read_task

_built: set[tuple[str, str]] = set()
"""Environments, with their wrappers, that this process has built once."""
_building = threading.Lock()


def pack_task(task: TaskRow) -> dict[str, Any]:
    """Return the fields of a task for a table whose columns have one type for all rows.

    Keyword arguments are JSON text.
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
        fields: The fields that `pack_task` returned; None when the row has no such column.
        remedy: How to make the data, for the message.

    Raises:
        ConfigError: The row names no environment.
    """
    try:
        return read_task(fields or {})
    except ConfigError as error:
        raise ConfigError(
            f"extra_info of a row of the data set: {error}; make the data with {remedy}"
        ) from None


def read_tasks(path: str | Path, read: Callable[[Any], TaskRow]) -> Iterator[tuple[str, TaskRow]]:
    """Read the tasks of a JSON Lines file.

    Args:
        path: The file.
        read: Returns the task of a row, or raises a `GemError`, ValueError or AttributeError.

    Yields:
        Where the task is, ``"tasks.jsonl, line 3"``, and the task.

    Raises:
        ConfigError: A line cannot be read; says which one.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path}, line {number}"
            try:
                task = read(json.loads(line))
            except (GemError, ValueError, AttributeError) as error:
                raise ConfigError(f"{place}: {error}") from error
            yield place, task


def check_tasks(
    tasks: Iterable[tuple[str, TaskRow]],
    wrappers: str = "",
    *,
    no_images: str | Callable[[], str | None] | None = None,
    for_training: bool = False,
) -> int:
    """Build every environment that the tasks name once per process, so that mistakes show before a run.

    Args:
        tasks: Where each task is, or an empty text, and the task.
        wrappers: Wrappers around every environment.
        no_images: Why the trainer or its model cannot take images, or a function that returns it; None when
            they can.
        for_training: Refuse tasks whose item is for evaluation.

    Returns:
        Number of tasks.

    Raises:
        GemError: An environment cannot be built or its images cannot be shown, or a task is refused. An error
            of a task with a place is a `ConfigError` that names it.
    """
    count = 0
    for place, task in tasks:
        count += 1
        try:
            source = EnvChoice(task["env_id"], task["env_kwargs"])
            check_environment(source, wrappers, no_images=no_images)
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
    """Build an environment, unless this process has built one like it; threads may call this.

    Args:
        source: The environment.
        wrappers: Wrappers around it.
        no_images: As in `check_tasks`.

    Raises:
        GemError: It cannot be built, or its images cannot be shown.
    """
    with _building:
        if (source.label, wrappers) not in _built:
            source.check_buildable(wrappers, no_images=no_images)
            _built.add((source.label, wrappers))


def evaluation_tasks(sources: Sequence[EnvChoice], number: int, *, repeat: int = 1) -> list[TaskRow]:
    """Return the tasks of an evaluation, always the same ones.

    Args:
        sources: Environments, which share `number` evenly.
        number: Most tasks in all. Each environment has at least one.
        repeat: Episodes per task.
    """
    each = max(number // len(sources), 1)
    return [
        task for source in sources for task in make_tasks([source], each, split="eval", group_size=repeat)
    ]
