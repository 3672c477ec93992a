"""Task rows in the format of verl's data sets, made by `GemDataset` or written by `gem-core export`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gem_core.core import Split
from gem_core.tasks import EnvChoice, TaskRow
from gem_core.trainers.tasks import check_tasks, pack_task, unpack_task

AGENT_NAME = "gem"
"""The agent loop that plays these rows. The name in a row takes precedence over ``default_agent_loop``."""

ROW_COLUMNS = ("agent_name", "extra_info")
"""The columns that `check_rows` reads."""


def verl_row(task: TaskRow, split: Split | None = None) -> dict[str, Any]:
    """Return the row of a task.

    The prompt only names the task: the reset in the agent loop returns the first observation.
    """
    label = EnvChoice(task["env_id"], task["env_kwargs"]).label
    return {
        "data_source": label,
        "agent_name": AGENT_NAME,
        "prompt": [{"role": "user", "content": f"{label}, seed {task['seed']}"}],
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {**pack_task(task), "split": split or ""},
    }


def task_of(row: Mapping[str, Any]) -> TaskRow:
    """Return the task of a row that verl passes to an agent loop.

    Raises:
        ConfigError: The row names no environment.
    """
    remedy = "data.custom_cls.name=GemDataset or with `gem-core export --to verl`"
    return unpack_task(row.get("extra_info"), remedy)


def check_rows(
    rows: Iterable[Mapping[str, Any]],
    wrappers: str,
    default_agent_loop: str = "",
    no_images: Callable[[], str | None] | None = None,
    *,
    for_training: bool = False,
) -> bool:
    """Build every environment named in the rows once, so that errors are reported before any episode is
    played.

    Args:
        rows: Rows of a data set; rows of other agent loops are ignored.
        wrappers: Wrappers around every environment.
        default_agent_loop: Agent loop of rows without one.
        no_images: Returns why the model cannot take images, or None if it can.
        for_training: Whether to reject rows whose item is for evaluation only.

    Returns:
        Whether the agent loop ``gem`` plays any row.

    Raises:
        GemError: A row names no environment, or its environment cannot be built or shown.
    """
    tasks = (task_of(row) for row in rows if (row.get("agent_name") or default_agent_loop) == AGENT_NAME)
    places = (("", task) for task in tasks)
    return check_tasks(places, wrappers, no_images=no_images, for_training=for_training) > 0
