"""Tasks as rows of a TRL dataset. The prompt is the task, because a rollout function receives only it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core._util.files import write_json_lines
from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import TaskRow, read_task
from gem_core.trainers.tasks import check_tasks, read_rows, split_tasks

REMEDY = "make the rows with gem_trl.tasks or `gem-core export --to trl`"
NO_IMAGES = "gem_trl trains on text only; train on it with verl, OpenRLHF, or `gem-core train`"


def tasks(envs: str | Sequence[str], num: int, *, seed: int = 0, split: Split = "train") -> Any:
    """Return a `datasets.Dataset` with one row per task; TRL repeats each row ``num_generations`` times.

    Args:
        envs: Environments, each ``ID``, ``ID=WEIGHT``, or ``ID(key=value, ...)=WEIGHT``.
        num: Number of tasks. Evaluation tasks are shared evenly by the environments, and there are fewer if
            a dataset has fewer evaluation items.
        seed: Random seed for the training tasks. Evaluation tasks are always the same.
        split: Whether the tasks are for training or evaluation, which never share a task.

    Raises:
        GemError: An environment cannot be built, or `num` is out of range.
    """
    from datasets import Dataset

    rows = split_tasks(envs, split, num, seed=seed, no_images=NO_IMAGES)
    return Dataset.from_list([task_prompt(task) for task in rows])


def task_prompt(task: TaskRow) -> dict[str, str]:
    """Return the row of a task."""
    return {"prompt": json.dumps(task)}


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write JSON Lines for ``datasets.load_dataset``, one row per task, as in `tasks`."""
    write_json_lines(path, map(task_prompt, rows))


def prompt_task(prompt: Any) -> TaskRow:
    """Return the task in a prompt.

    Raises:
        ConfigError: The prompt is not a task.
    """
    try:
        fields = json.loads(prompt)
        if not isinstance(fields, Mapping):
            raise ConfigError("it is not a JSON object")
        return read_task(fields)
    except (TypeError, ValueError, ConfigError) as error:
        raise ConfigError(f"the prompt {str(prompt)!r:.80} is not a task ({error}); {REMEDY}") from None


def check_dataset(dataset: Any, name: str, wrappers: str, *, for_training: bool) -> None:
    """Check the tasks of a dataset, and build each environment once; a stream is checked when it is played.

    Args:
        dataset: Dataset, or mapping from names to datasets; None checks nothing.
        name: Name of the argument, for messages.
        wrappers: Wrappers around every environment.
        for_training: Whether to reject tasks with evaluation items.

    Raises:
        GemError: A row is not a task, or its environment cannot be built.
    """
    if isinstance(dataset, Mapping):
        for key, part in dataset.items():
            check_dataset(part, f"{name}[{key!r}]", wrappers, for_training=for_training)
    elif hasattr(dataset, "__len__"):
        rows = ((f"{name}, row {number}", row.get("prompt")) for number, row in enumerate(dataset))
        located = read_rows(rows, prompt_task)
        check_tasks(located, wrappers, no_images=NO_IMAGES, for_training=for_training)


def episode_return(gem_return: Sequence[float | None], **unused: Any) -> list[float | None]:
    """Return the return of each episode, as a reward function of TRL; None for a failed episode.

    Args:
        gem_return: The column that the rollout adds.
        unused: The other columns.
    """
    return list(gem_return)
