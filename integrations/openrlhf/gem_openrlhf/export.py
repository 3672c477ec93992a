"""`gem-core export --to openrlhf`: JSON Lines for OpenRLHF's own data set class."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core.tasks import TaskRow
from gem_openrlhf.labels import openrlhf_row


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write one row per task; OpenRLHF repeats each row ``--rollout.n_samples_per_prompt`` times."""
    write_atomically(path, (json.dumps(openrlhf_row(row)) + "\n" for row in rows))
