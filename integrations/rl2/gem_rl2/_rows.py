"""Task rows in RL2's dataset, and `gem-core export --to rl2`.

In a row, ``extra_info`` holds the whole task.

RL2 0.0.2 passes a copy of ``extra_info`` to ``reset`` for each response of a group; the newer tree passes the
whole row. RL2 0.0.2 would never reset a row with a ``prompt`` or ``messages``.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gem_chat._files import check_ending
from gem_core._util.files import write_json_lines
from gem_core._util.messages import error_text, join_or
from gem_core.errors import ConfigError
from gem_core.tasks import TaskRow
from gem_core.trainers import pack_task, unpack_task
from gem_core.trainers._tasks import check_tasks, read_tasks

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".arrow")
"""Names of files from which RL2 recognizes a format; it takes another path for the name of a dataset."""
_MAX_ROWS = 10**12
"""Number of rows of a file that is not read; no index of a split lies behind its end."""
NO_IMAGES = "RL2's rows cannot hold pixels; train on it with verl, OpenRLHF, or `gem-core train`"


def rl2_row(task: TaskRow) -> dict[str, Any]:
    """Return a row for RL2."""
    return {"extra_info": pack_task(task)}


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write rows as JSON Lines, atomically.

    RL2 repeats each row ``responses_per_prompt`` times, so one row per task is enough.

    Raises:
        ConfigError: RL2 would not recognize the format from the name of the file.
    """
    check_ending(path, "RL2", ".jsonl", ".json")
    write_json_lines(path, map(rl2_row, rows))


def task_of(extra_info: Mapping[str, Any] | None) -> TaskRow:
    """Return the task of a row.

    Raises:
        ConfigError: The row names no environment.
    """
    return unpack_task(extra_info, "`gem-core export --to rl2`")


def check_file(path: str, *, for_training: bool = False) -> int | None:
    """Check the rows of a JSON Lines file before anything is loaded; other files are not read.

    Args:
        path: Path as in a config of RL2, which may begin with a split and ``@``.
        for_training: Whether to reject rows whose item is for evaluation only.

    Returns:
        Number of rows, of which a split may take some; None for another file.

    Raises:
        ConfigError: There is no such file or split, or it has no rows; a row names no environment, has its
            own prompt, or is rejected; or an environment cannot be built. The message names the line.
    """
    file = Path(path.rpartition("@")[2])
    advice = "`gem-core export --to rl2` writes such a file"
    is_name = "://" in path or set("*?[~") & set(path)  # for the library datasets
    if not (is_name or file.exists()) and (file.suffix in SUFFIXES or path.startswith((".", "/"))):
        raise ConfigError(f"{path}: there is no such file; {advice}")
    if file.is_file() and file.suffix not in SUFFIXES:
        raise ConfigError(f"{path}: expected a name that ends with {join_or(SUFFIXES)}; {advice}")
    if file.suffix in SUFFIXES:
        _rows_of_split(path, _MAX_ROWS)
    count = check_tasks(tasks_of(path), no_images=NO_IMAGES, for_training=for_training)
    if not _is_read(path):
        return None
    if not count:
        raise ConfigError(f"{path} has no rows; {advice}")
    return count


def tasks_of(path: str) -> Iterator[tuple[str, TaskRow]]:
    """Return the location and the task of each row of a local JSON Lines file; other files yield none.

    Args:
        path: As in `check_file`. A split such as ``train[:80%]`` takes some of the rows.

    Raises:
        ConfigError: A row names no environment, or has its own prompt; or there is no such split.
    """
    if not _is_read(path):
        return
    rows = read_tasks(path.rpartition("@")[2], _read_row)
    if "@" in path:
        every = list(rows)
        rows = (every[index] for part in _rows_of_split(path, len(every)) for index in part)
    yield from rows


def _rows_of_split(path: str, count: int) -> list[range]:
    """Return the indices of the rows that the split before ``@`` takes from a file of `count` rows."""
    from datasets import ReadInstruction

    split = path.rpartition("@")[0] or "train"
    try:
        parts = ReadInstruction.from_spec(split).to_absolute({"train": count})
    except (AssertionError, ValueError) as error:
        raise ConfigError(
            f"{path}: {error_text(error)}; a file has only the split train, or parts such as train[:80%]"
        ) from error
    return [range(part.from_ or 0, count if part.to is None else part.to) for part in parts]


def _is_read(path: str) -> bool:
    """Return whether a path is that of a local JSON Lines file."""
    file = Path(path.rpartition("@")[2])
    if file.suffix not in (".jsonl", ".json") or not file.is_file():
        return False
    with file.open("rb") as data:  # a file of one JSON array is JSON, too
        return file.suffix == ".jsonl" or data.read(64).removeprefix(BOM_UTF8).lstrip()[:1] != b"["


def _read_row(row: dict[str, Any]) -> TaskRow:
    for key in {"prompt", "messages"} & row.keys():
        raise ConfigError(f"the row has a {key!r}, but the environment writes the first prompt")
    return task_of(row.get("extra_info"))
