"""`gem-core export --to trl`: JSON Lines for ``datasets.load_dataset``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core.tasks import TaskRow
from gem_trl.dataset import task_prompt


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write one row per task, as in `gem_trl.tasks`; TRL repeats each row ``num_generations`` times."""
    write_atomically(path, (json.dumps(task_prompt(row)) + "\n" for row in rows))
