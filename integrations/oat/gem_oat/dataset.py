"""Tasks in the place of Oat's prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence

from torch.utils.data import Dataset

from gem_core.tasks import EnvChoice, TaskRow, make_tasks


class TaskDataset(Dataset[tuple[str, str, str]]):
    """Training tasks of a mix, one for each row that will be trained on.

    As many tasks as rows always suffice, because an episode has at least one turn. An actor keeps for
    later steps what it does not need of its share, so it skips no item of a data set. The length is what
    Oat plans learning rates by.

    Args:
        sources: The mix.
        rows: Rows of the whole run.
        seed: Chooses the training seeds.
    """

    def __init__(self, sources: Sequence[EnvChoice], rows: int, seed: int) -> None:
        self._tasks: list[TaskRow] = list(make_tasks(sources, rows, seed=seed))

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, number: int) -> tuple[str, str, str]:
        """Formatted prompt, prompt and reference, as in Oat; the prompt is the task as JSON."""
        return "", json.dumps(self._tasks[number]), ""


def evaluation_tasks(sources: Sequence[EnvChoice], number: int, repeat: int) -> list[TaskRow]:
    """Evaluation tasks, always the same: at most `number`, evenly by environment, each `repeat` times."""
    each = max(number // len(sources), 1)
    return [
        task for source in sources for task in make_tasks([source], each, split="eval", group_size=repeat)
    ]
