"""Task rows in the format of verl's datasets, and `gem-core export --to verl`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gem_chat._files import check_ending
from gem_core._core import Split
from gem_core._util.entry_points import load_attribute
from gem_core._util.files import write_atomically
from gem_core.tasks import EnvChoice, TaskRow
from gem_core.trainers import pack_task, unpack_task

AGENT_NAME = "gem"
"""The agent loop that plays these rows. The name in a row takes precedence over ``default_agent_loop``."""

ROW_COLUMNS = ("agent_name", "extra_info")
"""The columns that `gem_verl._options.check_data` reads."""


def agent_of(name: Any, default: str) -> str:
    """Return the agent loop that plays a row.

    Args:
        name: Value of the column ``agent_name``. Where files are mixed, some rows lack it: None, NaN,
            or empty, depending on what wrote or joined the files.
        default: verl's ``default_agent_loop``.
    """
    return name if isinstance(name, str) and name.strip() else default


def verl_row(task: TaskRow, split: Split | None = None) -> dict[str, Any]:
    """Return the row of a task.

    The prompt only names the task: the reset in the agent loop returns the first observation.
    """
    label = EnvChoice.of(task).label
    return {
        "data_source": label,
        "agent_name": AGENT_NAME,
        "prompt": [{"role": "user", "content": f"{label}, seed {task['seed']}"}],
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {**pack_task(task), "split": split or ""},
    }


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write tasks as parquet, one row per task; verl repeats each row ``rollout.n`` times.

    Raises:
        MissingDependency: pyarrow is not installed; verl depends on it.
        ConfigError: verl would not recognize the format from the name of the file.
    """
    check_ending(path, "verl", ".parquet")
    table = load_attribute("a parquet file", "pyarrow:Table", extra="data")
    from pyarrow import parquet

    content = io.BytesIO()
    parquet.write_table(table.from_pylist([verl_row(row) for row in rows]), content)
    write_atomically(path, [content.getvalue()])


def task_of(row: Mapping[str, Any]) -> TaskRow:
    """Return the task of a row that verl passes to an agent loop.

    Raises:
        ConfigError: The row names no environment.
    """
    remedy = (
        "data.custom_cls.name=GemDataset or with `gem-core export --to verl`, or name another agent loop "
        "than gem in the column agent_name or in actor_rollout_ref.rollout.agent.default_agent_loop"
    )
    return unpack_task(row.get("extra_info"), remedy)
