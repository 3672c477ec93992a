"""`gem-core export --to rl2`: JSON Lines for RL2's data set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core.errors import ConfigError
from gem_core.tasks import TaskRow
from gem_rl2.rows import rl2_row


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write rows as JSON Lines; the file appears complete or not at all.

    RL2 repeats each row ``responses_per_prompt`` times, so one row per task is enough.

    Raises:
        ConfigError: RL2 would not recognize the format from the name of the file.
    """
    if Path(path).suffix not in (".jsonl", ".json"):
        raise ConfigError(f"{path}: RL2 recognizes a format by the name of the file; end it with .jsonl")
    write_atomically(path, (json.dumps(rl2_row(row)) + "\n" for row in rows))
