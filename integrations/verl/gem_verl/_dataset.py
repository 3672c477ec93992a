"""`GemDataset`: the rows of your files and tasks of environments in one dataset, for ``data.custom_cls``.

    data.custom_cls.path=pkg://gem_verl.dataset data.custom_cls.name=GemDataset
    data.train_files='["gsm8k/train.parquet","game:GuessTheNumber-v0-easy=0.2"]'
    data.val_files='["gsm8k/test.parquet","game:GuessTheNumber-v0-easy"]'

verl's own dataset reads the files, with all of its options. Tasks of environments are generated from ids.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from datasets.exceptions import DatasetsError
from omegaconf import open_dict
from verl.utils.dataset.rl_dataset import RLHFDataset

from gem_core._core import Split
from gem_core._tasks import check_labels
from gem_core._util.messages import error_line, error_text
from gem_core.errors import ConfigError, UnknownEnv
from gem_core.tasks import EnvChoice, TaskRow
from gem_core.trainers._interface import expect_listed
from gem_core.trainers._options import option_at
from gem_core.trainers._tasks import split_tasks
from gem_verl import _SUPPORTED
from gem_verl._options import V1_ONLY
from gem_verl._rows import verl_row

expect_listed(_SUPPORTED, "dataset")

FORMATS = (".parquet", ".json", ".jsonl")
"""Endings of the files that verl's dataset reads."""
_FORMATS = ", ".join(FORMATS)

_OTHER_PROGRAMS = (
    "verl.experimental.one_step_off_policy.ray_trainer",
    "verl.experimental.fully_async_policy.fully_async_rollouter",
)
_ADDED = ("raw_prompt", "extra_info", "index", "tools_kwargs", "interaction_kwargs", "dummy_tensor")
"""Fields that verl's dataset adds to the columns of a file."""


class GemDataset(RLHFDataset):  # type: ignore[misc]
    """Rows of files and tasks of environments, for training or for validation.

    The rows of files are those of verl's own dataset, one per file, so files may have different columns. In
    training, the weight of an environment is relative to the files: with ``=0.2``, there are a fifth as many
    tasks as rows of files, and without a weight, as many. Without files, weights are relative to each other,
    and the number of tasks is that of `split_tasks`. Training and validation share neither seeds nor items of
    an environment. Validation always plays the same tasks of each environment.

    In the order of the dataset, the tasks are spread evenly among the rows of files.

    Args:
        data_files: Paths of files, and environments, each ``ID``, ``ID=WEIGHT``, or
            ``ID(key=value, ...)=WEIGHT``.
        tokenizer: As in verl's dataset.
        config: verl's section ``data``; the dataset is for validation if `data_files` is its ``val_files``.
        processor: As in verl's dataset.
        max_samples: Maximum number of rows of files, as in verl's dataset. Also the number of tasks in
            validation and in a dataset without files. -1 means all rows, and the default of `split_tasks`.

    Attributes:
        files: Path of each file, and verl's dataset of its rows.
        envs: The environments.
        tasks: Their tasks.
        missing: Fields that some rows lack, with the values that they get.

    Raises:
        GemError: An environment cannot be built (each one is tried once) or has no training items.
        ConfigError: A file has no prompts; an entry is neither a file nor an environment; ``train_files`` and
            ``val_files`` are indistinguishable; or a program of verl other than `main_ppo` is running.
    """

    serialize_dataset = True  # verl's method for pickling reads it

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any = None,
        config: Any = None,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        if any(module in sys.modules for module in _OTHER_PROGRAMS):
            raise ConfigError(f"data.custom_cls.name=GemDataset: gem_verl supports {V1_ONLY}")
        entries = _entries(data_files)
        paths = [entry for entry in entries if entry.endswith(FORMATS)]
        envs = [entry for entry in entries if not entry.endswith(FORMATS)]
        self.envs = [*map(_read_env, envs)]
        self.split: Split = _split(data_files, config) if envs else "train"
        self.files = _read_files(paths, tokenizer, config, processor, max_samples)
        self._ends = [0, *accumulate(len(part) for _, part in self.files)]
        count = max_samples if max_samples > 0 else None
        mixes = [(envs, count)] * bool(envs)
        if self.files and self.split == "train":  # each environment by itself, so that its number is exact
            rows, weights = self._ends[-1], _add_weights(self.envs)
            mixes = [([text], max(round(weight * rows), 1)) for text, weight in weights.items()]
        seed = option_at(config, "seed", 0)
        blocks = [_tasks(mix, self.split, number, seed) for mix, number in mixes]
        self.tasks: list[TaskRow] = [task for block in blocks for task in block]
        if self.split == "train":
            self._check_that_all_are_played()
        self.missing = self._find_missing()
        self._order = _spread([self._ends[-1], *map(len, blocks)])

    def _check_that_all_are_played(self) -> None:
        played = {EnvChoice.of(task).label for task in self.tasks}
        for env in self.envs:
            if env.label not in played:
                raise ConfigError(
                    f"{env.label}: none of the {len(self.tasks)} tasks plays it; raise its weight or "
                    "data.train_max_samples"
                )

    def _find_missing(self) -> dict[str, Any]:
        if len(self.files) + bool(self.tasks) < 2:
            return {}
        columns = [name for _, part in self.files for name in _columns(part)]
        # verl's validation calls a method of the second one.
        return dict.fromkeys([*columns, *["agent_name"] * bool(self.tasks)]) | {"reward_model": {}}

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, item: int) -> dict[str, Any]:
        place = int(self._order[item])
        if place >= self._ends[-1]:
            return self.missing | self._task_row(self.tasks[place - self._ends[-1]])
        number = bisect_right(self._ends, place) - 1
        path, part = self.files[number]
        own = part[place - self._ends[number]]
        return {**self.missing, **({"data_source": path} if self.missing else {}), **own}

    def _task_row(self, task: TaskRow) -> dict[str, Any]:
        row = verl_row(task, self.split)
        row["raw_prompt"] = row.pop("prompt")
        row |= {"index": row["extra_info"]["index"], "tools_kwargs": {}, "interaction_kwargs": {}}
        row["dummy_tensor"] = torch.tensor([0], dtype=torch.uint8)  # verl needs one tensor per row
        return row


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Name the remedy in the error of verl's own dataset about files with different columns."""
    try:
        yield
    except ValueError as error:
        remedy = "data.custom_cls.path=pkg://gem_verl.dataset data.custom_cls.name=GemDataset"
        if "Unsupported file format" in str(error):
            raise ConfigError(f"{error_text(error)}; {remedy} reads environments") from error
        if "features can't be aligned" not in str(error):
            raise
        raise ConfigError(
            f"verl's dataset cannot join these files, because their columns differ ({error_text(error)}); "
            f"{remedy} reads each by itself"
        ) from error


def _entries(data_files: Any) -> list[str]:
    entries = [data_files] if isinstance(data_files, str) else data_files
    if not (isinstance(entries, Sequence) and entries and all(isinstance(entry, str) for entry in entries)):
        raise ConfigError(
            f"data.train_files or data.val_files is {data_files!r}: expected a list of files and "
            "environments, such as \"['gsm8k/train.parquet','game:GuessTheNumber-v0-easy=0.2']\""
        )
    return [*entries]


def _add_weights(envs: Sequence[EnvChoice]) -> dict[str, float]:
    """Return the weight of each environment, which may be listed several times."""
    check_labels(envs)
    weights: dict[str, float] = {}
    for env in envs:
        weights[env.text] = weights.get(env.text, 0.0) + env.weight
    return weights


def _tasks(envs: Sequence[str], split: Split, count: int | None, seed: int) -> list[TaskRow]:
    try:
        return split_tasks(envs, split, count, seed=seed)
    except UnknownEnv as error:
        raise UnknownEnv(f"{error} Files, one in each entry of the list, end with {_FORMATS}.") from error


def _read_env(entry: str) -> EnvChoice:
    """Read an environment, or say why an entry is not a file either."""
    if re.search(rf"({'|'.join(map(re.escape, FORMATS))})\s*=[^)]*$", entry):
        raise ConfigError(
            f"{entry!r}: a file has no weight, because each epoch plays all of its rows; the weights of "
            "environments are relative to the rows of the files"
        )
    if os.path.exists(entry):  # a Path may be too long
        raise ConfigError(f"{entry!r}: verl reads files that end with {_FORMATS}")
    return EnvChoice.parse(entry)


def _read_files(
    paths: Sequence[str], tokenizer: Any, config: Any, processor: Any, max_samples: int
) -> list[tuple[str, Any]]:
    """Return verl's dataset for each file, which together have at most `max_samples` rows, as in verl."""
    if len(paths) == 1:
        files = [(paths[0], _read_file(paths[0], tokenizer, config, processor, max_samples))]
    else:
        files = _read_several(paths, tokenizer, config, processor, max_samples)
    for path, part in files:
        columns = part.dataframe.column_names
        if part.prompt_key not in columns:
            names = ", ".join(columns)
            raise ConfigError(
                f"{path}: there is no column data.prompt_key={part.prompt_key}; there are {names}"
            )
        if not len(part):
            raise ConfigError(
                f"{path}: no row is left; verl leaves out prompts of more than data.max_prompt_length="
                f"{part.max_prompt_length} tokens, and prompts that the chat template rejects"
            )
    return files


def _read_file(path: str, *arguments: Any) -> RLHFDataset:
    try:
        return RLHFDataset([path], *arguments)
    except (DatasetsError, StopIteration, ValueError) as error:
        raise ConfigError(
            f"{path}: verl's dataset cannot read it, or it is empty: {error_line(error.__cause__ or error)}"
        ) from error


def _read_several(
    paths: Sequence[str], tokenizer: Any, config: Any, processor: Any, max_samples: int
) -> list[tuple[str, Any]]:
    """Do what verl's dataset does with several files, but without joining their columns."""
    unfiltered = copy.deepcopy(config)
    if unfiltered is not None:
        with open_dict(unfiltered):
            unfiltered.filter_overlong_prompts = False
    parts = [_read_file(path, tokenizer, unfiltered, processor) for path in paths]
    chosen = _choose(sum(map(len, parts)), max_samples, config)
    start = 0
    files = []
    for path, part in zip(paths, parts, strict=True):  # verl chooses rows before it filters them
        own = chosen[(chosen >= start) & (chosen < start + len(part))] - start
        start += len(part)
        if len(own) < len(part):
            part.dataframe = part.dataframe.select(own)
        if len(own):
            part.filter_overlong_prompts = config.get("filter_overlong_prompts", True)
            part.dataframe = part.maybe_filter_out_long_prompts(part.dataframe)
            files.append((path, part))
    return files


def _choose(total: int, limit: int, config: Any) -> np.ndarray[Any, Any]:
    """Return the numbers of the rows that verl's dataset chooses if there are more than `limit`."""
    if not 0 < limit < total:
        return np.arange(total)
    if not config.get("shuffle", False):
        return np.arange(limit)
    return np.random.default_rng(config.get("seed")).choice(total, size=limit, replace=False)


def _columns(part: Any) -> list[str]:
    """Return the fields of the rows of a file."""
    media = (part.image_key, part.video_key, part.audio_key)
    return [*(name for name in part.dataframe.column_names if name not in media), *_ADDED]


def _spread(counts: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the numbers of consecutive blocks in an order in which each block is spread evenly."""
    places = [(np.arange(count) + 0.5) / max(count, 1) for count in counts]
    return np.argsort(np.concatenate(places), kind="stable")


def _split(data_files: Any, config: Any) -> Split:
    """Return which of the two datasets this is; verl builds both in the same way, from one config."""
    train, val = option_at(config, "train_files"), option_at(config, "val_files")
    text = isinstance(data_files, str)
    if text and data_files == train == val:
        raise ConfigError(
            "data.train_files and data.val_files are the same text; write them as lists, "
            f"data.val_files='[\"{data_files}\"]', so that validation gets evaluation seeds"
        )
    return "eval" if (data_files == val if text else data_files is val) else "train"
