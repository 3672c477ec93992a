"""`gem-core export --to verl`: a parquet file for verl's own data set class."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from gem_core._util.files import write_atomically
from gem_core.errors import MissingDependency
from gem_core.tasks import TaskRow
from gem_verl.rows import verl_row


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write tasks as parquet, one row per task; verl repeats each row ``rollout.n`` times.

    Raises:
        MissingDependency: pyarrow is not installed; verl depends on it.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingDependency("a parquet file needs the package 'pyarrow': pip install pyarrow") from error
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([verl_row(row) for row in rows]), content)
    write_atomically(path, [content.getvalue()])
