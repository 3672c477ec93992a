"""Episodes on disk: JSON Lines, one `Episode.to_dict()` per line, each with its schema version.

    with TraceWriter("run/traces.jsonl", decode=tokenizer.decode) as traces:
        traces.write(episode)
    for episode in read_traces("run/traces.jsonl"):
        ...

A trace file survives a killed process and a full disk: at most its last line is incomplete. Readers skip an
incomplete last line, and the next writer removes it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gem_core._util.closing import Closing
from gem_core._util.files import named
from gem_core._util.foreign_json import read_json
from gem_core.errors import TraceError
from gem_core.rollout._trajectory import Episode

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

_BLOCK = 1 << 16


class TraceWriter(Closing):
    """Appends episodes to a trace file. Several processes may append to one file.

    Args:
        path: Path of the file. The file and its folders are created if missing; an incomplete last line is
            removed.
        decode: Function from a list of token ids to text, such as ``tokenizer.decode``. If given, each line
            also holds the text of every token in it under "token_text", so a viewer needs no tokenizer. None
            omits the texts.

    Raises:
        OSError: The file cannot be opened or written, or was removed in the meantime; the error names it. If
            the disk is full, all earlier lines stay complete.
    """

    def __init__(self, path: str | Path, *, decode: Callable[[list[int]], str] | None = None) -> None:
        self.path = Path(path)
        self._decode = decode
        self._texts: dict[int, str] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: int | None = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            with named(self.path), _locked(self._file):
                _cut_incomplete_line(self._file, self.path)
        except OSError:
            self.close()
            raise

    def write(self, episode: Episode) -> None:
        """Append one episode."""
        if self._file is None:
            raise ValueError(f"the trace file {self.path} is closed")
        record = episode.to_dict()
        if self._decode is not None:
            record["token_text"] = self._token_text(episode)
        line = _line(record)
        with named(self.path), _locked(self._file):
            if not os.path.samestat(os.stat(self.path), os.fstat(self._file)):
                raise FileNotFoundError(errno.ENOENT, "the file was replaced by another one")
            start = os.fstat(self._file).st_size
            written = 0
            try:
                while written < len(line):
                    written += os.write(self._file, line[written:])
            except OSError:
                if written:
                    os.ftruncate(self._file, start)
                raise

    def close(self) -> None:
        """Flush the file to disk and close it. May be called more than once."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            if os.path.isfile(self.path):  # fsync fails on a pipe or /dev/stdout
                with named(self.path):
                    os.fsync(file)
        finally:
            os.close(file)

    def _token_text(self, episode: Episode) -> dict[str, str]:
        assert self._decode is not None
        ids = {token_id for turn in episode.turns for token_id in (*turn.context_ids, *turn.response_ids)}
        for token_id in ids - self._texts.keys():
            self._texts[token_id] = self._decode([token_id])
        return {str(token_id): self._texts[token_id] for token_id in sorted(ids)}


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_traces(path: str | Path) -> Iterator[Episode]:
    """Yield the episodes of a trace file, in order.

    An incomplete last line, left by a killed process, is skipped with a warning.

    Raises:
        TraceError: Another line is damaged; the message names the file and the line.
        OSError: The file cannot be read.
    """
    for number, record in trace_records(path):
        record.pop("token_text", None)
        try:
            yield Episode.from_dict(record)
        except TraceError as error:
            raise TraceError(f"{path}, line {number}: {error}") from None


def trace_records(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each complete line, from 1, and the object in it.

    Raises:
        TraceError: A line is not a JSON object.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                logger.warning("%s: skipped the incomplete last line (%d)", path, number)
                return
            try:
                record = read_json(line)
            except ValueError as error:  # bad JSON or bad UTF-8
                raise TraceError(f"{path}, line {number}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise TraceError(f"{path}, line {number}: expected an object, not {type(record).__name__}")
            yield number, record


@contextlib.contextmanager
def _locked(file: int) -> Iterator[None]:
    """Lock out other writers, so that a line they are writing is not mistaken for an incomplete one."""
    locked = False
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
            locked = True
    try:
        yield
    finally:
        if locked:
            fcntl.flock(file, fcntl.LOCK_UN)


def _cut_incomplete_line(file: int, path: Path) -> None:
    """Truncate the file after its last newline."""
    size = os.fstat(file).st_size
    end = size
    while end:
        start = max(0, end - _BLOCK)
        os.lseek(file, start, os.SEEK_SET)
        newline = os.read(file, end - start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        logger.warning("%s: removed an incomplete last line of %d bytes", path, size - end)
        os.ftruncate(file, end)
