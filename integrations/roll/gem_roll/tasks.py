"""Which task an episode plays: by its tag, group and number, not by the random seeds of ROLL's groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import TaskRow, TaskSource, make_tasks, read_task

TRAIN_TASKS = 10_000
"""Made on the fly; then they come again."""


class TaskTable:
    """The tasks of one tag.

    Args:
        rows: Tasks in order.
        first_group: Number of the tag's first group.
        groups: Number of its groups.
        rounds: Episodes of a group after which the table begins again; None when it is used up.
    """

    def __init__(
        self, rows: Sequence[TaskRow], first_group: int, groups: int, rounds: int | None = None
    ) -> None:
        self._rows = rows
        self._first_group = first_group
        self._groups = groups
        self._rounds = rounds

    def task(self, group_id: int, episode_id: int) -> TaskRow:
        """The task of a group's n-th episode of a run: a step plays the next rows of the table.

        All samples of a group get the same one.
        """
        number = episode_id if self._rounds is None else episode_id % self._rounds
        return self._rows[(number * self._groups + group_id - self._first_group) % len(self._rows)]


def table_of(
    config: Any, section: Any, tag: str, source: TaskSource, split: Split, path: str | None
) -> TaskTable:
    """The tasks of a tag in one of the two sections of a ROLL config.

    Training goes through its table; each validation plays the same tasks.

    Args:
        config: ROLL's `AgenticConfig`.
        section: Its ``train_env_manager`` or ``val_env_manager``.
        tag: Of the environment.
        source: The environment behind it.
        split: Which of the two.
        path: JSON Lines of task rows; None makes them on the fly.

    Raises:
        ConfigError: The file cannot be read, or has no task of this environment.
    """
    tags, partition = list(section.tags), list(section.num_groups_partition)
    if tags.count(tag) != 1:
        raise ConfigError(f"tag {tag!r} stands {tags.count(tag)} times in tags; expected once")
    at = tags.index(tag)
    groups = partition[at]
    rounds = section.max_traj_per_env if split == "held_out" else None
    if path is None:
        count = TRAIN_TASKS if rounds is None else groups * rounds
        rows: Sequence[TaskRow] = _made(source.label, count, config.seed, split)
    else:
        rows = [row for row in _read(path) if _same(row, source)]
        if not rows:
            raise ConfigError(
                f"{path} has no task of {source.label}, the environment of tag {tag!r}; "
                "`gem-core export --to roll` writes tasks and custom_envs that fit"
            )
    return TaskTable(rows, sum(partition[:at]), groups, rounds)


@lru_cache
def _made(label: str, count: int, seed: int, split: Split) -> tuple[TaskRow, ...]:
    return tuple(make_tasks([TaskSource.parse(label)], count, seed=seed, split=split))


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


def _same(row: TaskRow, source: TaskSource) -> bool:
    return TaskSource(row["env_id"], row["env_kwargs"]).label == source.label
