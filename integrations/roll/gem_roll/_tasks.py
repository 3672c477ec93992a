"""Chooses the task of each episode by its tag, group, and number, not by the seeds of ROLL's groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from gem_core._core import Split
from gem_core._tasks import count_items
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, make_tasks, read_task
from gem_core.trainers import read_tasks
from gem_core.trainers._tasks import check_tasks

TaskTable: TypeAlias = Callable[[int, int], TaskRow]
"""Returns the task of a group's n-th episode of a run, both numbered from 0.

Each step plays the next rows of the tag's tasks, and all samples of a group play the same task.
"""


def table_of(
    config: Any, section: Any, tag: str, source: EnvChoice, split: Split, path: str | None
) -> TaskTable:
    """Return the tasks of a tag in one of the two sections of a ROLL config.

    Training goes through an endless sequence of tasks; each validation plays the same tasks.

    Args:
        config: ROLL's `AgenticConfig`.
        section: ``train_env_manager`` or ``val_env_manager`` of the config.
        tag: Tag of the environment.
        source: Environment of the tag.
        split: "train" or "eval".
        path: JSON Lines file of task rows, repeated after the last one. None generates tasks on the fly.

    Raises:
        ConfigError: The file cannot be read or has no task of this environment; a validation would play
            evaluation items more than once; or training would play evaluation items.
        GemError: The environment cannot be built.
    """
    tags, partition = list(section.tags), list(section.num_groups_partition)
    if tags.count(tag) != 1:
        raise ConfigError(f"tag {tag!r} is in tags {tags.count(tag)} times: expected once")
    position = tags.index(tag)
    first, groups = sum(partition[:position]), partition[position]
    rounds: int | None = section.max_traj_per_env if split == "eval" else None
    rows = None if path is None else rows_of(path, tag, source.for_split(split), training=split == "train")

    def task(group_id: int, episode_id: int) -> TaskRow:
        number: int = (episode_id if rounds is None else episode_id % rounds) * groups + group_id - first
        if rows is not None:
            return rows[number % len(rows)]
        return next(make_tasks([source], 1, seed=config.seed, split=split, start=number))

    items = count_items(source, split) if rows is None and rounds is not None else None
    if items is not None and rounds is not None and groups * rounds > items:
        raise ConfigError(
            f"a validation plays {groups * rounds} tasks of tag {tag!r}, but {source.label} has {items} "
            "evaluation items; lower val_batch_size, or raise val_env_manager.group_size for more samples of "
            "each"
        )
    task(first, 0)  # reports errors now
    return task


def rows_of(path: str, tag: str, source: EnvChoice, *, training: bool) -> list[TaskRow]:
    """Return the tasks of an environment in a file.

    Args:
        path: JSON Lines file of task rows.
        tag: Tag of the environment, for messages.
        source: The environment.
        training: Whether to reject evaluation items.

    Raises:
        ConfigError: The file cannot be read or has no task of this environment, or a task is rejected.
    """
    tasks = [
        (place, row)
        for place, row in _read_file(path)
        if (row["env_id"], row["env_kwargs"]) == (source.env_id, source.env_kwargs)
    ]
    if not tasks:
        raise ConfigError(
            f"{path} has no task of {source.label}, the environment of tag {tag!r}; `gem-core export "
            "--to tasks` writes such files"
        )
    if training:
        check_tasks(tasks, for_training=True)
    return [row for _, row in tasks]


@lru_cache
def _read_file(path: str) -> tuple[tuple[str, TaskRow], ...]:
    """Return the location and the task of each line."""
    if not Path(path).is_file():
        raise ConfigError(f"{path}: there is no such file; `gem-core export --to tasks` writes such files")
    return tuple(read_tasks(path, read_task))


def check_every_row_is_played(path: str, sources: Sequence[EnvChoice]) -> None:
    """Check that each task of a file has a tag whose environment plays it.

    Args:
        path: JSON Lines file of task rows.
        sources: Environments of the tags.

    Raises:
        ConfigError: No tag has the environment of a task; the message names the line.
    """
    played = [(source.env_id, source.env_kwargs) for source in sources]
    for place, row in _read_file(path):
        if (row["env_id"], row["env_kwargs"]) not in played:
            raise ConfigError(
                f"{place}: no tag has the environment {EnvChoice.of(row).label}, so the task would never be "
                f"played; the tags play {', '.join(source.label for source in sources)}"
            )
