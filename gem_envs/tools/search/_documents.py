"""Documents on disk, with random access by index."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gem_core._util.foreign_json import read_json
from gem_core.errors import DataError
from gem_envs.tools.search._corpus import Document

_FILE, _STARTS = "documents.jsonl", "document_starts.npy"


def write_documents(documents: Iterable[Document], folder: Path) -> Iterator[Document]:
    """Write the documents while passing them on; the files are complete after the last one."""
    starts = [0]
    with open(folder / _FILE, "wb") as file:
        for document in documents:
            line = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            file.write(line)
            starts.append(starts[-1] + len(line))
            yield document
    np.save(folder / _STARTS, np.array(starts, dtype=np.int64))


class Documents:
    """The documents of a folder, memory-mapped and shared by all processes that read them.

    Raises:
        ValueError: A file is damaged; `folders.reading` reports it.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE
        self._starts = np.load(folder / _STARTS, mmap_mode="r")
        with open(folder / _FILE, "rb") as file:
            size = int(self._starts[-1])
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        if len(self._data) != size:
            raise ValueError(f"{_FILE} has {len(self._data)} instead of {size} bytes")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> Document:
        start, end = int(self._starts[index]), int(self._starts[index + 1])
        try:
            document: Document = read_json(self._data[start:end])
        except ValueError as error:
            raise DataError(f"{self._file} is damaged: document {index} is not JSON ({error})") from error
        return document
