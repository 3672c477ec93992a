"""Index folders, built once and read by many processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gem_core._util.foreign_json import read_json_file
from gem_core.errors import DataError


def cache_folder(kind: str, facts: dict[str, Any]) -> Path:
    """Return the folder of an index, under ``$GEM_CORE_CACHE`` or, if unset, in the user's cache folder."""
    cache = os.environ.get("GEM_CORE_CACHE")
    root = Path(cache) if cache else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "gem-core"
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return root.expanduser() / "search" / f"{kind}-{digest}"


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
    with _locked(folder.with_name(f".{folder.name}.lock")):
        if folder.is_dir():
            return folder
        unfinished = folder.with_name(f".{folder.name}.building")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            build(unfinished)
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
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
