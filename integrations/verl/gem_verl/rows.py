"""Task rows as verl's data sets have them: made on the fly by `GemDataset`, or written to parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, check_train_row, read_task

AGENT_NAME = "gem"
"""The agent loop that plays these rows; a row's own name goes before ``default_agent_loop``."""


def verl_row(task: TaskRow, split: Split | None = None) -> dict[str, Any]:
    """A row for verl.

    The prompt only names the task: the environment's first observation is made by the reset in the
    agent loop. The arguments travel as JSON, because a parquet column has one type for all rows.
    """
    label = EnvChoice(task["env_id"], task["env_kwargs"]).label
    return {
        "data_source": label,
        "agent_name": AGENT_NAME,
        "prompt": [{"role": "user", "content": f"{label}, seed {task['seed']}"}],
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {
            "index": task["index"],
            "env_id": task["env_id"],
            "env_kwargs": json.dumps(task["env_kwargs"], sort_keys=True),
            "seed": task["seed"],
            "item": task.get("item"),
            "split": split or "",
        },
    }


def task_of(row: Mapping[str, Any]) -> TaskRow:
    """The task of a row that verl hands to an agent loop.

    Raises:
        ConfigError: The row names no environment.
    """
    try:
        return read_task(row.get("extra_info") or {})
    except ConfigError as error:
        raise ConfigError(
            f"extra_info of a row of the data set: {error}; make the data with data.custom_cls.name="
            "GemDataset or with `gem-core export --to verl`"
        ) from None


ROW_COLUMNS = ("agent_name", "extra_info")
"""What `check_rows` reads."""

_built: set[tuple[str, str]] = set()
"""Environments, with their wrappers, that this process has built once."""


def check_rows(
    rows: Iterable[Mapping[str, Any]],
    wrappers: str,
    default_agent_loop: str = "",
    no_images: Callable[[], str | None] = lambda: None,
    *,
    for_training: bool = False,
) -> bool:
    """Build every environment that rows name once, so that what is wrong shows before anything is played.

    Args:
        rows: Of a data set; those of other agent loops are left alone.
        wrappers: Around every environment.
        default_agent_loop: Plays the rows that name none.
        no_images: Says why the model cannot be shown images; None when it can.
        for_training: Reject rows whose item is for evaluation only.

    Returns:
        Whether any row is one of ours.

    Raises:
        GemError: A row names no environment, or one that cannot be built or shown.
    """
    ours = False
    for row in rows:
        if (row.get("agent_name") or default_agent_loop) == AGENT_NAME:
            ours = True
            task = task_of(row)
            source = EnvChoice(task["env_id"], task["env_kwargs"])
            if (source.label, wrappers) not in _built:
                source.check_buildable(wrappers, no_images=no_images)
                _built.add((source.label, wrappers))
            if for_training:
                check_train_row(task)
    return ours
