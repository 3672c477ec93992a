"""Task rows as verl's data sets hold them: made by `GemDataset`, or written by `gem-core export`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, read_task
from gem_core.trainers.tasks import check_tasks

AGENT_NAME = "gem"
"""The agent loop that plays these rows. The name in a row takes precedence over ``default_agent_loop``."""

ROW_COLUMNS = ("agent_name", "extra_info")
"""The columns that `check_rows` reads."""


def verl_row(task: TaskRow, split: Split | None = None) -> dict[str, Any]:
    """Return the row of a task.

    The prompt only names the task: the reset in the agent loop makes the first observation. Keyword arguments
    are JSON text, because a parquet column has one type for all rows.
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
    """Return the task of a row that verl passes to an agent loop.

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


def check_rows(
    rows: Iterable[Mapping[str, Any]],
    wrappers: str,
    default_agent_loop: str = "",
    no_images: Callable[[], str | None] | None = None,
    *,
    for_training: bool = False,
) -> bool:
    """Build every environment that the rows name once, so that mistakes show before anything is played.

    Args:
        rows: Rows of a data set; those of other agent loops are ignored.
        wrappers: Wrappers around every environment.
        default_agent_loop: Agent loop of rows that name none.
        no_images: Returns why the model cannot take images, or None when it can.
        for_training: Reject rows whose item is for evaluation.

    Returns:
        Whether any row is played by the agent loop ``gem``.

    Raises:
        GemError: A row names no environment, or one that cannot be built or shown.
    """
    tasks = (task_of(row) for row in rows if (row.get("agent_name") or default_agent_loop) == AGENT_NAME)
    places = (("", task) for task in tasks)
    return check_tasks(places, wrappers, no_images=no_images, for_training=for_training) > 0
