"""Which task an episode plays: by its tag, group and number, not by the random seeds of ROLL's groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, check_train_row, count_items, make_tasks, read_task


class TaskTable:
    """The tasks of one tag.

    Args:
        row: Returns the task with this number, from 0 on.
        first_group: Number of the tag's first group.
        groups: Number of its groups.
        rounds: Episodes of a group after which the table starts over; None if it never does.
    """

    def __init__(
        self, row: Callable[[int], TaskRow], first_group: int, groups: int, rounds: int | None = None
    ) -> None:
        self._row = row
        self._first_group = first_group
        self._groups = groups
        self._rounds = rounds

    def task(self, group_id: int, episode_id: int) -> TaskRow:
        """The task of a group's n-th episode of a run: a step plays the next rows of the table.

        All samples of a group get the same one.
        """
        number = episode_id if self._rounds is None else episode_id % self._rounds
        return self._row(number * self._groups + group_id - self._first_group)


def table_of(
    config: Any, section: Any, tag: str, source: EnvChoice, split: Split, path: str | None
) -> TaskTable:
    """The tasks of a tag in one of the two sections of a ROLL config.

    Training goes through its tasks, which do not end; each validation plays the same ones.

    Args:
        config: ROLL's `AgenticConfig`.
        section: Its ``train_env_manager`` or ``val_env_manager``.
        tag: Of the environment.
        source: The environment behind it.
        split: Which of the two.
        path: JSON Lines of task rows, which start over after the last one; None makes them on the fly.

    Raises:
        ConfigError: The file cannot be read or has no task of this environment; a validation would play
            evaluation items more than once; or training would play any.
        GemError: The environment cannot be built.
    """
    tags, partition = list(section.tags), list(section.num_groups_partition)
    if tags.count(tag) != 1:
        raise ConfigError(f"tag {tag!r} stands {tags.count(tag)} times in tags; expected once")
    at = tags.index(tag)
    groups = partition[at]
    rounds = section.max_traj_per_env if split == "eval" else None
    if path is None:
        if rounds is not None:
            _check_items(source, tag, groups * rounds)
        row: Callable[[int], TaskRow] = partial(_made, source, config.seed, split)
        row(0)  # so that what is wrong shows now
    else:
        played = source.for_split(split)
        rows = [row for row in _read(path) if _same(row, played)]
        if not rows:
            raise ConfigError(
                f"{path} has no task of {played.label}, the environment of tag {tag!r}; "
                "`gem-core export --to roll` writes tasks and custom_envs that fit"
            )
        for task in rows if split == "train" else ():
            check_train_row(task)
        row = partial(_of_file, rows)
    return TaskTable(row, sum(partition[:at]), groups, rounds)


def _check_items(source: EnvChoice, tag: str, tasks: int) -> None:
    items = count_items(source, "eval")
    if items is not None and tasks > items:
        raise ConfigError(
            f"a validation plays {tasks} tasks of tag {tag!r}, but {source.label} has {items} evaluation "
            "items; lower val_batch_size, or raise val_env_manager.group_size for more samples of each"
        )


def _made(source: EnvChoice, seed: int, split: Split, number: int) -> TaskRow:
    return next(make_tasks([source], 1, seed=seed, split=split, start=number))


def _of_file(rows: Sequence[TaskRow], number: int) -> TaskRow:
    return rows[number % len(rows)]


@lru_cache
def _read(path: str) -> tuple[TaskRow, ...]:
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                rows.append(read_task(json.loads(line)))
            except (ValueError, AttributeError) as error:  # a ConfigError is a ValueError
                raise ConfigError(f"{path}, line {number}: {error}") from None
    return tuple(rows)


def _same(row: TaskRow, source: EnvChoice) -> bool:
    return row["env_id"] == source.env_id and row["env_kwargs"] == source.env_kwargs
