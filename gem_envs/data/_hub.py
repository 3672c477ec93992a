"""Datasets on the Hugging Face Hub: the files of a split and their location on this machine.

The client library transfers and caches the files, and its environment variables apply (``HF_ENDPOINT``,
``HF_HOME``, ``HF_TOKEN``, ``HF_HUB_OFFLINE``, and those of proxies, which it applies to loopback addresses,
too). Without a connection, the cache is used; if the cache lacks
the dataset, an error with advice is raised within `PATIENCE` seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NoReturn, TypeVar
from urllib.parse import urlsplit

from gem_core._util.messages import error_line, unknown
from gem_core.errors import ConfigError, DataError, MissingDependency
from gem_envs._proxies import named_for, via
from gem_envs.data._file_rows import SUFFIXES, FileRows

T = TypeVar("T")
PATIENCE = 15.0
"""Time limit in seconds for the list of files of a dataset; a failing name lookup may take longer."""
_ANSWER = 5.0
"""Time limit in seconds for one response of the hub."""

_SHARD = re.compile(r"(.+?)-\d{5}-of-\d{5}")
_KEYWORDS = {
    "train": "train", "training": "train", "test": "test", "testing": "test", "eval": "test",
    "evaluation": "test", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation",
}  # fmt: skip


def hub_rows(
    id: str, split: str | None, subset: str | None, revision: str | None, streaming: bool
) -> FileRows:
    """Return the rows of a dataset on the hub.

    Args:
        id: Id of the dataset, ``owner/name``.
        split: Split of the dataset; None if it has only one.
        subset: Folder of the repository, for datasets with several subsets; None if there is only one.
        revision: Branch, tag, or commit; None means the newest.
        streaming: Whether to read rows on demand over the network instead of downloading files.

    Raises:
        DataError: The hub has no such dataset, or cannot be reached and the cache lacks the dataset.
        ConfigError: The split or subset does not exist, or one must be chosen.
        MissingDependency: The client library is not installed.
    """
    try:
        import huggingface_hub as hub
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"the dataset {id} needs the package 'huggingface_hub': pip install 'gem-core[data]'"
        ) from error
    endpoint = os.environ.get("HF_ENDPOINT") or None
    api = hub.HfApi(endpoint=endpoint)
    try:
        info = _within(
            PATIENCE,
            lambda: api.dataset_info(id, revision=revision, timeout=_ANSWER),
        )
    except Exception as error:  # the HTTP library depends on the version of the client
        if _absent(error):
            raise DataError(
                f"the hub has no dataset {id!r} that this account can read; check the id or set HF_TOKEN"
            ) from error
        return FileRows(id, *_cached(id, split, subset, revision, error, endpoint))
    names = [sibling.rfilename for sibling in info.siblings or []]
    chosen = choose_files(id, names, split, subset)
    suffix = PurePosixPath(chosen[0]).suffix
    if streaming:
        system = hub.HfFileSystem(endpoint=endpoint)
        return FileRows(id, [_opener(system, f"datasets/{id}@{info.sha}/{name}") for name in chosen], suffix)
    try:
        paths = [
            Path(
                hub.hf_hub_download(
                    id, name, repo_type="dataset", revision=revision, endpoint=endpoint, etag_timeout=_ANSWER
                )
            )
            for name in chosen
        ]
    except Exception as error:
        raise DataError(
            f"the dataset {id} could not be downloaded{_via(endpoint)} ({error_line(error, 160)}); try again"
        ) from error
    return FileRows(id, paths, suffix)


def choose_files(name: str, files: Sequence[str], split: str | None, subset: str | None) -> list[str]:
    """Select the files of a split among all files of a dataset, by the naming rules of the hub.

    ``data/train-00000-of-00002.parquet``, ``test.jsonl``, and ``dev/part.csv`` name their split; other files
    belong to train. A file whose name without suffix equals the requested split also belongs to that split.

    Raises:
        ConfigError: The split or subset does not exist, or one must be chosen.
        DataError: No file has a supported format.
    """
    data = sorted(f for f in files if PurePosixPath(f).suffix in SUFFIXES and not _is_about(f))
    if not data:
        raise DataError(f"{name} has no file of a supported format: expected {', '.join(SUFFIXES)}")
    if subset is not None:
        data = [f for f in data if subset in PurePosixPath(f).parts[:-1]] or _raise_unknown(
            "subset", subset, name, _folders(data)
        )
    for suffix in SUFFIXES:  # a dataset in several formats repeats its rows in each format
        if same := [f for f in data if f.endswith(suffix)]:
            data = same
            break
    splits: dict[str, list[str]] = {}
    for file in data:
        splits.setdefault(split_of(file), []).append(file)
    if split is None:
        if len(splits) > 1:
            raise ConfigError(f"{name} has several splits; set split= to one of {', '.join(sorted(splits))}")
        (chosen,) = splits.values()
    else:
        chosen = splits.get(split) or [f for f in data if PurePosixPath(f).stem == split]
        chosen = chosen or _raise_unknown("split", split, name, sorted(splits))
    if len(_folders(chosen)) > 1 and subset is None:
        raise ConfigError(f"{name} has several subsets; set subset= to one of {', '.join(_folders(chosen))}")
    return chosen


def split_of(file: str) -> str:
    """Return the split that a file or folder name indicates; ``"train"`` if it indicates none."""
    path = PurePosixPath(file)
    if shard := _SHARD.fullmatch(path.stem):
        return shard[1]
    for part in (path.stem, *reversed(path.parts[:-1])):
        for word in re.split(r"[-_. ]", part.lower()):
            if word in _KEYWORDS:
                return _KEYWORDS[word]
    return "train"


def _folders(files: Sequence[str]) -> list[str]:
    """Return the folders that may be subsets: all except those that name a split."""
    return sorted(
        {str(parent) for f in files if (parent := PurePosixPath(f).parent).name.lower() not in _KEYWORDS}
    )


def _is_about(file: str) -> bool:
    """Return whether a file describes the dataset rather than being part of it."""
    path = PurePosixPath(file)
    return path.name in ("dataset_info.json", "dataset_infos.json", "state.json", "config.json") or any(
        part.startswith(".") for part in path.parts
    )


def _raise_unknown(kind: str, name: str, dataset: str, known: Sequence[str]) -> NoReturn:
    raise ConfigError(unknown(kind, name, known, owner=dataset))


def _via(endpoint: str | None) -> str:
    """Return the end of a phrase: the proxy that the client library uses, and how to do without it."""
    from huggingface_hub.constants import ENDPOINT

    url = endpoint or ENDPOINT
    proxy = named_for(url)
    if proxy is None:
        return ""
    return f"{via(proxy)} (list {urlsplit(url).hostname} in NO_PROXY to do without it)"


def _cached(
    id: str,
    split: str | None,
    subset: str | None,
    revision: str | None,
    error: Exception,
    endpoint: str | None,
) -> tuple[list[Path], str]:
    """Return the files of an earlier download and their suffix.

    Raises:
        DataError: There was no earlier download; the message includes `error`, why the hub failed.
    """
    import huggingface_hub as hub

    try:
        folder = Path(
            hub.snapshot_download(id, repo_type="dataset", revision=revision, local_files_only=True)
        )
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        chosen = choose_files(id, files, split, subset)
    except Exception:
        raise DataError(
            f"the dataset {id} is not on this machine, and the hub cannot be reached{_via(endpoint)} "
            f"({error_line(error, 160)}); connect once to download it, or set dataset_name= to a parquet, "
            "jsonl, json, or csv file"
        ) from error
    return [folder / name for name in chosen], PurePosixPath(chosen[0]).suffix


def _opener(system: Any, path: str) -> Callable[[], BinaryIO]:
    def open_remote() -> BinaryIO:
        opened: BinaryIO = system.open(path, "rb")
        return opened

    open_remote.name = path  # type: ignore[attr-defined]  # name in messages
    return open_remote


def _absent(error: Exception) -> bool:
    """Return whether the hub reported that the dataset does not exist or is not accessible."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status in (401, 403, 404) or type(error).__name__ == "HFValidationError"


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of `call`, or raise TimeoutError and leave the call in its thread."""
    from concurrent.futures import wait

    from gem_core._util.threads import TOOL_THREADS  # loads asyncio, which data in files does not need

    future = TOOL_THREADS.submit(call)
    if not wait([future], timeout=seconds).done:
        TOOL_THREADS.abandon(future)
        raise TimeoutError(f"no response within {seconds:g} seconds")
    return future.result()
