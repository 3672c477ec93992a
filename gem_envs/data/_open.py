"""`open_rows`: opens a dataset, once per process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from gem_core._util.forks import ForkSafeLock
from gem_core.errors import ConfigError, DataError
from gem_envs.data._file_rows import SUFFIXES, FileRows
from gem_envs.data._hub import choose_files, hub_rows

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class _Key(NamedTuple):
    source: str
    split: str | None
    subset: str | None
    revision: str | None
    streaming: bool
    changed: int | None
    """Modification time of a local file, in nanoseconds."""


_opened: dict[_Key, FileRows] = {}
_locks: dict[_Key, ForkSafeLock] = {}
_registry_lock = ForkSafeLock()


def open_rows(
    source: str,
    split: str | None = None,
    *,
    subset: str | None = None,
    revision: str | None = None,
    streaming: bool = False,
) -> FileRows:
    """Open a dataset, or return it if it is open already; the environments of a process share it.

    Args:
        source: Path of a parquet, jsonl, ndjson, json, or csv file, path of a folder of such files, or id of
            a dataset on the Hugging Face Hub.
        split: Split of the dataset; None for a single file, or if there is only one split.
        subset: Folder within the dataset, if it has several subsets.
        revision: Branch, tag, or commit of a dataset on the hub; None means the newest.
        streaming: Whether to read a dataset on the hub over the network on demand, without downloading it.

    Raises:
        DataError: The dataset cannot be found, reached, or read, or has no rows.
        ConfigError: The split or subset does not exist, or one must be chosen.
        MissingDependency: A package for the format is missing.
    """
    path = Path(source).expanduser()
    changed = path.stat().st_mtime_ns if path.is_file() else None
    key = _Key(source, split, subset, revision, streaming, changed)
    with _registry_lock:
        lock = _locks.setdefault(key, ForkSafeLock())
    with lock:  # so that environments starting at the same time download it once
        if key not in _opened:
            rows = _open(path, key)
            if not len(rows):
                raise DataError(
                    f"{source}{f' (split {split})' if split else ''} has no rows; choose another file "
                    "or split"
                )
            _opened[key] = rows
        return _opened[key]


def _open(path: Path, key: _Key) -> FileRows:
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise ConfigError(f"{path} has an unsupported suffix: expected {', '.join(SUFFIXES)}")
        return FileRows(str(path), [path], path.suffix)
    if path.is_dir():
        files = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
        chosen = choose_files(str(path), files, key.split, key.subset)
        return FileRows(str(path), [path / name for name in chosen], Path(chosen[0]).suffix)
    if not _HUB_ID.fullmatch(key.source) or path.suffix in SUFFIXES:
        raise DataError(
            f"there is no file {key.source!r}: expected a file, a folder, or an id (owner/name) on "
            "the Hugging Face Hub"
        )
    return hub_rows(key.source, key.split, key.subset, key.revision, key.streaming)
