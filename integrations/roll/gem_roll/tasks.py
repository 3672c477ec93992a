"""Chooses the task of each episode by its tag, group and number, not by the seeds of ROLL's groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, count_items, make_tasks, read_task
from gem_core.trainers.tasks import check_tasks, read_tasks


@dataclass(frozen=True)
class TaskTable:
    """The tasks of one tag.

    Attributes:
        row: Returns the task with a given number, starting at 0.
        first_group: Number of the tag's first group.
        groups: Number of the tag's groups.
        rounds: Number of episodes of a group after which the table starts over; None means never.
    """

    row: Callable[[int], TaskRow]
    first_group: int
    groups: int
    rounds: int | None = None

    def task(self, group_id: int, episode_id: int) -> TaskRow:
        """Return the task of a group's n-th episode of a run; each step plays the next rows of the table.

        All samples of a group play the same task.
        """
        number = episode_id if self.rounds is None else episode_id % self.rounds
        return self.row(number * self.groups + group_id - self.first_group)


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
        raise ConfigError(f"tag {tag!r} is in tags {tags.count(tag)} times; expected once")
    position = tags.index(tag)
    groups = partition[position]
    rounds = section.max_traj_per_env if split == "eval" else None
    if path is None:
        if rounds is not None:
            _check_items(source, tag, groups * rounds)
        row: Callable[[int], TaskRow] = partial(_generated, source, config.seed, split)
        row(0)  # reports errors now
    else:
        played = source.for_split(split)
        wanted = (played.env_id, played.env_kwargs)
        located = [item for item in _read_file(path) if (item[1]["env_id"], item[1]["env_kwargs"]) == wanted]
        if not located:
            raise ConfigError(
                f"{path} has no task of {played.label}, the environment of tag {tag!r}; "
                "`gem-core export --to roll` writes tasks and custom_envs that fit"
            )
        if split == "train":
            check_tasks(located, for_training=True)
        row = partial(_repeated, [task for _, task in located])
    return TaskTable(row, sum(partition[:position]), groups, rounds)


def _check_items(source: EnvChoice, tag: str, tasks: int) -> None:
    items = count_items(source, "eval")
    if items is not None and tasks > items:
        raise ConfigError(
            f"a validation plays {tasks} tasks of tag {tag!r}, but {source.label} has {items} evaluation "
            "items; lower val_batch_size, or raise val_env_manager.group_size for more samples of each"
        )


def _generated(source: EnvChoice, seed: int, split: Split, number: int) -> TaskRow:
    return next(make_tasks([source], 1, seed=seed, split=split, start=number))


def _repeated(rows: Sequence[TaskRow], number: int) -> TaskRow:
    return rows[number % len(rows)]


@lru_cache
def _read_file(path: str) -> tuple[tuple[str, TaskRow], ...]:
    """Return the place and the task of each line."""
    return tuple(read_tasks(path, read_task))
