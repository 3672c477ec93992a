"""`gem-core export --to toy`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gem_core.tasks import TaskRow


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write one line per task."""
    Path(path).write_text("".join(f"{row['env_id']} {row['seed']}\n" for row in rows))
