"""Task rows as RL2's data set has them: everything about the task is in ``extra_info``.

RL2 0.0.2 hands ``extra_info`` to ``reset``, a copy for each response of a group; the newer tree hands
over the whole row. A row with a ``prompt`` or ``messages`` would never be reset in 0.0.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, check_train_row, read_task

NO_IMAGES = "RL2's rows have no place for pixels; train on it with verl, OpenRLHF or `gem-core train`"


def rl2_row(task: TaskRow) -> dict[str, Any]:
    """A row for RL2. The arguments travel as JSON, because a column has one type for all rows."""
    return {
        "extra_info": {
            "env_id": task["env_id"],
            "env_kwargs": json.dumps(task["env_kwargs"], sort_keys=True),
            "seed": task["seed"],
            "index": task["index"],
            "item": task.get("item"),
        }
    }


def task_of(extra_info: Mapping[str, Any] | None) -> TaskRow:
    """The task of a row.

    Raises:
        ConfigError: The row names no environment.
    """
    try:
        return read_task(extra_info or {})
    except ConfigError as error:
        raise ConfigError(
            f"extra_info of a row of the data set: {error}; make the data with `gem-core export --to rl2`"
        ) from None


def check_file(path: str, *, for_training: bool = False) -> None:
    """Look at the rows of a JSON Lines file before anything is loaded; other files show when played.

    Args:
        path: As in a config of RL2.
        for_training: Reject rows whose item is for evaluation only.

    Raises:
        ConfigError: A row names no environment, has a prompt of its own, or is refused; says which line.
        GemError: An environment cannot be built.
    """
    path = path.rpartition("@")[2]  # RL2 writes a split before it
    if not path.endswith(".jsonl") or not Path(path).is_file():
        return
    sources: dict[str, EnvChoice] = {}
    tasks: list[TaskRow] = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                for key in {"prompt", "messages"} & row.keys():
                    raise ConfigError(f"the row has a {key!r}, but the environment makes the first prompt")
                task = task_of(row.get("extra_info"))
            except (ValueError, AttributeError) as error:  # a ConfigError is a ValueError
                raise ConfigError(f"{path}, line {number}: {error}") from None
            source = EnvChoice(task["env_id"], task["env_kwargs"])
            sources[source.label] = source
            tasks.append(task)
    for source in sources.values():
        source.check_buildable(no_images=NO_IMAGES)
    for number, task in enumerate(tasks if for_training else [], start=1):
        try:
            check_train_row(task)
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
