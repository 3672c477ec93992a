"""Task rows in the format of verl's data sets, made by `GemDataset` or written by `gem-core export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core.core import Split
from gem_core.tasks import EnvChoice, TaskRow
from gem_core.trainers.tasks import pack_task, unpack_task

AGENT_NAME = "gem"
"""The agent loop that plays these rows. The name in a row takes precedence over ``default_agent_loop``."""

ROW_COLUMNS = ("agent_name", "extra_info")
"""The columns that `gem_verl.options.check_data` reads."""


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
