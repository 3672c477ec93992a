"""Rows in files: parquet, JSON Lines, JSON, and CSV.

Parquet files are read by row group through a memory map, JSON Lines files through an index of their lines, so
a dataset may be larger than memory. JSON and CSV files are read as a whole on first access.
"""

from __future__ import annotations

import bisect
import csv
import io
import itertools
import mmap
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from gem_core._util.foreign_json import read_json
from gem_core._util.forks import ForkSafeLock
from gem_core._util.messages import error_text
from gem_core.errors import DataError, MissingDependency
from gem_envs.data._rows import DataRow

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json", ".csv")
_BATCH = 1000
_GROUPS = 4
"""Number of cached row groups per parquet file; a group has about 1,000 (hub) to 1,000,000 rows."""


class FileRows:
    """The concatenated rows of several files, which are opened on first access.

    Args:
        name: Name of the dataset, for messages.
        parts: Paths of local files, or functions that open a remote file for binary reading.
        suffix: Suffix that determines the format of all parts; one of `SUFFIXES`.
    """

    def __init__(self, name: str, parts: Sequence[Path | Callable[[], BinaryIO]], suffix: str) -> None:
        self.name = name
        self.is_local = all(isinstance(part, Path) for part in parts)
        """Whether all parts are local files, so that reading all rows is cheap."""
        self._parts = parts
        self._suffix = suffix
        self._lock = ForkSafeLock()
        self._opened: list[_Part] | None = None
        self._ends: list[int] = []

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns; for a JSON file, the columns of its first row."""
        return tuple(dict.fromkeys(c for part in self._open() for c in part.columns))

    def __len__(self) -> int:
        self._open()
        return self._ends[-1]

    def __getitem__(self, index: int) -> DataRow:
        parts = self._open()
        which = bisect.bisect_right(self._ends, index)
        part = parts[which]
        within = index - (self._ends[which - 1] if which else 0)
        with self._lock:  # file readers are not thread-safe
            try:
                return part.row(within)
            except (ValueError, OSError, UnicodeError, KeyError, RecursionError) as error:
                raise DataError(
                    f"{part.where}: row {within} cannot be read ({error_text(error, 200)})"
                ) from error

    def scan(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the values of some columns in every row, in order; None if a row lacks the column.

        Raises:
            DataError: A row cannot be read.
        """
        for part in self._open():
            batches = part.batches(columns)
            while True:
                with self._lock:
                    try:
                        batch = next(batches, None)
                    except (ValueError, OSError, UnicodeError, KeyError, RecursionError) as error:
                        raise DataError(
                            f"{part.where}: not every row can be read ({error_text(error, 200)})"
                        ) from error
                if batch is None:
                    break
                for row in batch:
                    yield [row.get(column) for column in columns]

    def _open(self) -> list[_Part]:
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    opened = [_open_part(self._suffix, part) for part in self._parts]
                    self._ends = list(itertools.accumulate(len(part) for part in opened))
                    self._opened = opened
        return self._opened


class _Part:
    """The rows of one file."""

    columns: Sequence[str]
    where: str

    def __len__(self) -> int:
        raise NotImplementedError

    def row(self, index: int) -> DataRow:
        raise NotImplementedError

    def batches(self, columns: Sequence[str]) -> Iterator[list[DataRow]]:
        """Yield all rows in batches; each row has at least these columns."""
        for start in range(0, len(self), _BATCH):
            yield [self.row(index) for index in range(start, min(start + _BATCH, len(self)))]


class _Parquet(_Part):
    def __init__(self, where: str, source: Path | BinaryIO) -> None:
        try:
            import pyarrow.parquet as parquet
        except ModuleNotFoundError as error:
            raise MissingDependency(
                f"{where} needs the package 'pyarrow': pip install 'gem-core[data]'"
            ) from error
        self.where = where
        local = isinstance(source, Path)
        self.file = parquet.ParquetFile(source, memory_map=True) if local else parquet.ParquetFile(source)
        self.columns = self.file.schema_arrow.names
        metadata = self.file.metadata
        groups = (metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
        self.ends = list(itertools.accumulate(groups))
        self.kept: OrderedDict[int, Any] = OrderedDict()

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, index: int) -> DataRow:
        group = bisect.bisect_right(self.ends, index)
        if group not in self.kept:
            self.kept[group] = self.file.read_row_group(group)
            if len(self.kept) > _GROUPS:
                self.kept.popitem(last=False)
        self.kept.move_to_end(group)
        start = self.ends[group - 1] if group else 0
        row: DataRow = self.kept[group].slice(index - start, 1).to_pylist()[0]
        return row

    def batches(self, columns: Sequence[str]) -> Iterator[list[DataRow]]:
        present = [column for column in columns if column in self.columns]
        for batch in self.file.iter_batches(_BATCH, columns=present):
            yield batch.to_pylist()


class _Lines(_Part):
    def __init__(self, where: str, source: Path | BinaryIO) -> None:
        self.where = where
        if isinstance(source, Path):
            with open(source, "rb") as file:
                empty = not file.seek(0, io.SEEK_END)
                self.data: mmap.mmap | bytes = (
                    b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                )
        else:
            self.data = source.read()
        self.starts: list[tuple[int, int]] = []
        start = 0
        while start < len(self.data):
            end = self.data.find(b"\n", start)
            end = len(self.data) if end < 0 else end
            if self.data[start:end].strip():
                self.starts.append((start, end))
            start = end + 1
        self.columns = list(self.row(0)) if self.starts else []

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, index: int) -> DataRow:
        start, end = self.starts[index]
        return _object(read_json(self.data[start:end]))


class _List(_Part):
    def __init__(self, where: str, rows: Any) -> None:
        if isinstance(rows, dict) and isinstance(rows.get("data"), list):
            rows = rows["data"]
        if not isinstance(rows, list):
            raise ValueError("expected a list of objects")
        self.where = where
        self.rows = rows = [_object(row) for row in rows]
        self.columns = list(rows[0]) if rows else []

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, index: int) -> DataRow:
        return dict(self.rows[index])


def _object(row: Any) -> DataRow:
    """Return a row; a list of objects, such as a conversation, has the columns "0", "1", and so on."""
    if isinstance(row, list) and row and all(isinstance(one, dict) for one in row):
        return {str(place): one for place, one in enumerate(row)}
    if not isinstance(row, dict):
        raise ValueError("a row is not a JSON object")
    return row


def _open_part(suffix: str, part: Path | Callable[[], BinaryIO]) -> _Part:
    where = str(part) if isinstance(part, Path) else str(getattr(part, "name", part))
    try:
        source = part if isinstance(part, Path) else part()
        if suffix == ".parquet":
            return _Parquet(where, source)
        if suffix in (".jsonl", ".ndjson"):
            return _Lines(where, source)
        data = source.read_bytes() if isinstance(source, Path) else source.read()
        if suffix == ".json":
            return _List(where, read_json(data))
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        rows = list(reader)
        short = next((n for n, row in enumerate(rows) if None in row or None in row.values()), None)
        if short is not None:
            raise ValueError(f"row {short} has fewer fields than the header")
        return _List(where, rows)
    except (ValueError, OSError, UnicodeError, csv.Error, RecursionError) as error:
        raise DataError(f"{where} cannot be read as {suffix[1:]} ({error_text(error, 200)})") from error
