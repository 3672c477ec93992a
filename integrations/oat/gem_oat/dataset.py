"""The data set of training tasks, which replaces Oat's prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence

from torch.utils.data import Dataset

from gem_core.tasks import EnvChoice, TaskRow, make_tasks


class TaskDataset(Dataset[tuple[str, str, str]]):
    """Training tasks of a mix, one for each row that will be trained on.

    An episode has at least one turn, so this many tasks always suffice. An actor keeps the tasks that it does
    not need for later steps, so no item of a data set is skipped. Oat plans learning rates by the length.

    Args:
        sources: Environments of the mix.
        rows: Number of rows of the whole run.
        seed: Random seed that chooses the tasks.
    """

    def __init__(self, sources: Sequence[EnvChoice], rows: int, seed: int) -> None:
        self._tasks: list[TaskRow] = list(make_tasks(sources, rows, seed=seed))

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, number: int) -> tuple[str, str, str]:
        """Return formatted prompt, prompt and reference, as in Oat. The prompt is the task as JSON."""
        return "", json.dumps(self._tasks[number]), ""
