"""The user's files before anything starts: data as OpenRLHF will read it, and Python that it will load."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from glob import glob
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gem_core._core import Split
from gem_core._util.foreign_json import read_json
from gem_core._util.messages import error_line
from gem_core.errors import ConfigError
from gem_openrlhf._dataset import plays_rows

_READABLE = (".json", ".jsonl", ".csv", ".parquet", ".arrow")
_UNREADABLE = (".txt", ".tsv", ".yaml", ".zip", ".gz", ".zst", ".xlsx", ".feather")
"""Other endings of files."""
_WITHOUT_GEM = {"openrlhf", "torch", "ray", "vllm", "transformers", "numpy", *sys.stdlib_module_names}
"""Modules through which an agent does not come to gem-core."""
_HUB = re.compile(r"(?:[\w.-]+/)?[\w.-]+(?:@.*)?")
"""Name of a dataset on the Hub, in OpenRLHF with a folder of it after ``@``."""


def unread_files(files: Sequence[str]) -> list[str]:
    """Return the data that only a run reads, such as datasets on the Hub.

    Raises:
        ConfigError: A file does not exist.
    """
    unread = [file for file in files if Path(file).suffix not in _READABLE or "://" in file]
    for file in files:
        path = Path(file.partition("@")[0])
        read = path.is_file() and path.suffix in (*_READABLE, ".py")  # .py: a script that loads data
        read = read or (path.suffix in _READABLE and bool(glob(file, recursive=True)))
        if not (read or path.is_dir() or "://" in file or on_hub(file)):
            problem = "OpenRLHF does not read such files" if path.is_file() else "there is no such file"
            raise ConfigError(f"{file}: {problem}{_similar(path)}")
    return unread


def on_hub(file: str) -> bool:
    """Return whether OpenRLHF would look for data on the Hub, and its name is not like that of a file."""
    path = Path(file.partition("@")[0])
    if path.exists() or path.suffix in _READABLE or not _HUB.fullmatch(file):
        return False
    # A folder with data here is no organization on the Hub, but one of the same name may hold copies of its
    # datasets, each in a folder.
    beside = {each.suffix for each in path.parent.iterdir()} if path.parent.is_dir() else set()
    in_folder = str(path.parent) != "." and not beside.isdisjoint(_READABLE)
    return not (in_folder or path.suffix in _UNREADABLE or _close(path.suffix.lower(), _READABLE))


def _close(name: str, names: Iterable[str]) -> list[str]:
    return get_close_matches(name, names, cutoff=0.76)


def _similar(path: Path) -> str:
    """Return a hint at the files with a similar name, or else at what OpenRLHF reads."""
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    if names := [name for name in _close(path.name, beside) if name != path.name]:
        return f". Did you mean {' or '.join(str(path.with_name(name)) for name in names)}?"
    return f"; it reads files that end with {', '.join(_READABLE)}, folders, and datasets on the Hub"


def read_rows(file: str, split: Split, args: Any) -> Iterator[tuple[str, Any]]:
    """Yield the place and the content of each row of a local file.

    Raises:
        ConfigError: A row cannot be read.
    """
    if not file.endswith(".jsonl") or not _has_lines(Path(file)):
        rows = enumerate(blend([file], None, split, args), start=1)
        yield from ((f"{file}, row {number}", row) for number, row in rows)
        return
    place = file
    try:
        with open(file, encoding="utf-8-sig") as lines:  # OpenRLHF skips a byte order mark, too
            for number, line in enumerate(lines, start=1):
                place = f"{file}, line {number}"
                if line.strip():
                    yield place, read_json(line)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from None


def _has_lines(path: Path) -> bool:
    """Return whether each line of a file is a row, unlike in one list and in files that match a pattern."""
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return not file.read(1000).lstrip("\ufeff \t\r\n").startswith("[")


def blend(files: Sequence[str], probabilities: str | None, split: Split, args: Any) -> Any:
    """Return the rows of local files, as OpenRLHF reads them together.

    Args:
        files: Paths, at least one.
        probabilities: Value of ``--data.prompt_probs``.
        split: Training or evaluation; only training limits the rows of each file.
        args: OpenRLHF's flags.

    Raises:
        ConfigError: OpenRLHF cannot read them.
    """
    from openrlhf.datasets.utils import blending_datasets

    option, part = (
        ("data.prompt_split", args.data.prompt_split) if split == "train" else ("eval.split", args.eval.split)
    )
    if part != "train":
        raise ConfigError(f"--{option} {part}: {files[0]} has no such split; those of files are named train")
    quiet = SimpleNamespace(args=args, print=lambda *_: None, is_rank_0=lambda: False)
    given = {"seed": args.train.seed, "max_count": args.data.max_samples} if split == "train" else {}
    try:
        return blending_datasets(",".join(files), probabilities, strategy=quiet, dataset_split=part, **given)
    except Exception as error:  # datasets and pyarrow raise anything
        raise ConfigError(f"{', '.join(files)}: OpenRLHF cannot read this: {error_line(error)}") from error


def check_defines(option: str, file: str, name: str) -> None:
    """Check that a file is Python and mentions a name, without running it.

    Raises:
        ConfigError: It is not, or does not mention it.
    """
    try:
        code = Path(file).read_bytes()  # as Python reads it, with a byte order mark or not
        compile(code, file, "exec")
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{option} {file}: {error_line(error)}") from error
    if name.encode() not in code and b"import *" not in code:
        raise ConfigError(f"{option} {file}: expected the file to define {name}")


def check_knows_tasks(agent: str | None, place: str) -> None:
    """Check that the agent of a run is ours, or a file that may use gem-core, perhaps through other modules.

    Raises:
        ConfigError: It cannot; `place` is where the task is.
    """
    if not agent or plays_rows(agent):
        return
    if _imports(Path(agent).read_bytes()) <= _WITHOUT_GEM:
        raise ConfigError(
            f"{place}: {agent} does not use gem-core, so the name of the task would be its prompt; let its "
            "AgentExecutor be a subclass of gem_openrlhf.GemExecutor, which takes an agent for other rows"
        )


@lru_cache(maxsize=1)  # asked for each row of a file
def _imports(code: bytes) -> frozenset[str]:
    """Return the top-level packages that a module imports; an empty name for its own."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)]
    return frozenset(name.partition(".")[0] for name in names)
