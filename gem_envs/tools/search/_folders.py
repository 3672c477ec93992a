"""Index folders, built once and read by many processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from gem_core._util.files import named
from gem_core._util.foreign_json import read_json_file
from gem_core._util.messages import error_text
from gem_core.errors import ConfigError, DataError

T = TypeVar("T")

CACHE = "GEM_CORE_CACHE"
"""Environment variable with the folder of indexes and other things that can be made again."""
_SIZES = "files.json"
"""File with the sizes of all others, by which a truncated one is recognized."""
_DAMAGE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, EOFError)
logger = logging.getLogger(__name__)


def cache_folder(kind: str, facts: dict[str, Any]) -> Path:
    """Return the folder of an index, under ``$GEM_CORE_CACHE`` or, if unset, in the user's cache folder.

    Raises:
        ConfigError: The user has no home folder, as in some containers, and no variable names another one.
    """
    cache = os.environ.get(CACHE)
    root = Path(cache) if cache else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "gem-core"
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    try:
        return root.expanduser() / "search" / f"{kind}-{digest}"
    except RuntimeError:
        raise ConfigError(
            f"this user has no home folder to keep search indexes in; set the environment variable {CACHE} "
            "to a folder"
        ) from None


def open_cached(folder: Path, build: Callable[[Path], None], open_index: Callable[[Path], T]) -> T:
    """Open an index in the cache folder; one that does not exist or is damaged is built.

    Args:
        folder: Folder of the index, see `cache_folder`.
        build: As in `build_once`.
        open_index: Opens the index in a folder, or raises `DataError` if it is damaged.

    Raises:
        DataError: The index is damaged even though it has just been built.
        OSError: The disk is full, or the folder cannot be read or written; the error names it.
    """
    try:
        built = build_once(folder, build)
        try:
            return open_index(built)
        except DataError as error:
            logger.warning("%s", error)
        with _locked(_lock_of(folder)):
            try:
                return open_index(folder)  # another process has built it again
            except DataError:
                shutil.rmtree(folder)
        return open_index(build_once(folder, build))
    except OSError as error:
        reason = f"{error.strerror or error} (the environment variable {CACHE} names the folder of indexes)"
        raise OSError(error.errno, reason, error.filename or str(folder)) from error


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Create `folder` with `build`, unless it exists.

    The folder is created atomically. If several processes need it at the same time, one builds it and the
    others wait; the next process removes the leftovers of one that was killed.

    Raises:
        OSError: The disk is full, or the folder is not writable.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(_lock_of(folder)):
        if folder.is_dir():
            return folder
        unfinished = folder.with_name(f".{folder.name}.building")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            build(unfinished)
            sizes = {file.name: file.stat().st_size for file in unfinished.iterdir()}
            (unfinished / _SIZES).write_text(json.dumps(sizes) + "\n")
            for file in unfinished.iterdir():
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
            unfinished.rename(folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an interprocess lock, which is released even if its holder is killed."""
    with open(path, "a") as file:
        with named(path):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Report the errors of damaged files in the ``with`` block, after a look at the sizes of all files.

    Raises:
        DataError: A file is missing, has a different size than when it was written, or cannot be decoded.
        OSError: A file cannot be read; the error names it.
    """
    try:
        sizes = read_json_file(folder / _SIZES)
        for name, size in sizes.items():
            if (now := (folder / name).stat().st_size) != size:
                raise ValueError(f"{name} has {now} instead of {size} bytes")
        yield
    except (*_DAMAGE, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"the search index {folder} is damaged ({error_text(error)}); build it again"
        ) from error


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Write the facts about an index, for `read_facts`."""
    (folder / "index.json").write_text(json.dumps(facts, indent=1) + "\n")


def read_facts(folder: Path, kind: str, version: int) -> dict[str, Any]:
    """Return the facts about an index.

    Raises:
        DataError: The folder contains no index of this kind and version.
    """
    try:
        facts: dict[str, Any] = read_json_file(folder / "index.json")
        if (facts["kind"], facts["version"]) != (kind, version):
            raise ValueError(f"it is a {facts['kind']} index of version {facts['version']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder} contains no {kind} index of version {version} ({error}); build it again"
        ) from None
    return facts
