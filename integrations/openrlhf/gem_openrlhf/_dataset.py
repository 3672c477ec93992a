"""Environments among OpenRLHF's data files: ``--data.prompt_dataset questions.jsonl,game:Sudoku-v0=0.5``.

OpenRLHF reads the files itself. The tasks of the environments are added to its rows, in the columns that
``--data.input_key`` and ``--data.label_key`` name, so the files keep their format.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from gem_core._core import Split
from gem_core._tasks import check_labels
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, make_tasks
from gem_core.trainers._imports import replaced
from gem_core.trainers._tasks import split_tasks
from gem_openrlhf import TRAINER
from gem_openrlhf._labels import OwnLabel, names_task, openrlhf_row, own_source

T = TypeVar("T")

_WORD = re.compile(r"""(?:[^,()]|\((?:[^()'"]|'[^']*'|"[^"]*"|\([^()]*\))*\))+""")
"""A word of a list of data, in which commas inside of parentheses do not count."""


def split_words(text: str | None) -> tuple[list[str], list[EnvChoice]]:
    """Split the value of ``--data.prompt_dataset`` or ``--eval.dataset`` into data files and environments.

    An environment that is listed several times has the sum of its weights.

    Raises:
        ConfigError: A parenthesis or a word is missing, or an environment cannot be read.
    """
    files: list[str] = []
    envs: dict[str, EnvChoice] = {}
    for word in _words(text or ""):
        _, colon, rest = word.partition(":")
        if colon and not rest.startswith("//") and not os.path.exists(word):  # a Path may be too long
            env = EnvChoice.parse(word)
            before = envs[env.text].weight if env.text in envs else 0.0
            envs[env.text] = replace(env, weight=before + env.weight)
        else:
            files.append(word)
    check_labels(envs.values())
    return files, [*envs.values()]


def _words(text: str) -> list[str]:
    words = _WORD.findall(text)
    if ",".join(words) != text:  # the names of files may have a parenthesis without another one
        words = text.split(",")
        if not all(word and (os.path.exists(word.strip()) or _WORD.fullmatch(word)) for word in words):
            raise ConfigError(
                f"{text!r}: expected data files and environments, separated by commas; is a parenthesis "
                "missing?"
            )
    return [word.strip() for word in words]


def join_words(files: Iterable[str], envs: Iterable[EnvChoice]) -> str:
    """Return what `split_words` reads, with absolute paths in the ids of environments.

    Raises:
        ConfigError: A path has a character that separates words.
    """
    files, words = [*files], {env.text: str(env.weight).removesuffix(".0") for env in envs}
    text = ",".join([*files, *(f"{env}={weight}" for env, weight in words.items())])
    if split_words(text) != (files, [EnvChoice.parse(f"{env}={weight}") for env, weight in words.items()]):
        raise ConfigError(f"{text!r}: move the file to a folder without commas and parentheses in its name")
    return text


def tasks_beside(envs: Sequence[EnvChoice], split: Split, rows: int | None, seed: int) -> list[TaskRow]:
    """Return the tasks of environments in a list of data.

    Args:
        envs: The environments. Beside files, each has its weight times `rows` tasks, at least one.
        split: Split of the tasks.
        rows: Number of rows of the data files; None if there are none, for the tasks of `split_tasks`.
        seed: Random seed of training tasks.

    Raises:
        GemError: As in `split_tasks`.
    """
    if rows is None:
        return split_tasks([f"{env.text}={env.weight:g}" for env in envs], split, seed=seed)
    counts = [max(round(rows * env.weight), 1) for env in envs]
    parts = (make_tasks([env], n, seed=seed, split=split) for env, n in zip(envs, counts, strict=True))
    tasks = spread(*map(list, parts))
    return [{**task, "index": index} for index, task in enumerate(tasks)]


class Rows(list[dict[str, Any]]):
    """Rows in memory, with the one method of a data set that OpenRLHF calls before it reads them."""

    def select(self, indices: Iterable[int]) -> Rows:
        """Return the rows with these indices."""
        return Rows(self[index] for index in indices)


def spread(*parts: Sequence[T]) -> list[T]:
    """Return the rows of all parts, each spread evenly, because OpenRLHF may use only the first ones."""
    places = [((n + 0.5) / len(part), row) for part in parts for n, row in enumerate(part)]
    return [row for _, row in sorted(places, key=lambda place: place[0])]


def prepare_datasets(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `prepare_datasets` so that a list of data may contain environments.

    Labels that name no task become `OwnLabel`, if the agent of gem_openrlhf plays the rows.
    """
    from openrlhf.trainer import ppo_trainer

    @functools.wraps(original)
    def prepare(strategy: Any, tokenizer: Any) -> Any:
        data = strategy.args.data
        splits: Iterator[Split] = iter(("train", "eval"))  # the order in which OpenRLHF reads them
        own_agent = plays_rows(strategy.args.train.agent_func_path)
        blend = ppo_trainer.blending_datasets

        def read(datasets: str, *args: Any, **kwargs: Any) -> Any:
            split = next(splits)
            files, envs = split_words(datasets)
            if not (envs or own_agent):
                return blend(datasets, *args, **kwargs)
            if data.label_key is None:
                raise ConfigError(NO_LABEL_KEY)
            found = list(blend(",".join(files), *args, **kwargs)) if files else []
            own = [_own_row(row, data.label_key) for row in found]
            tasks = (
                tasks_beside(envs, split, len(own) if files else None, strategy.args.train.seed)
                if envs
                else []
            )
            return Rows(spread(own, [_row_of(task, data) for task in tasks]))

        with replaced(ppo_trainer, "blending_datasets", read):
            return original(strategy, tokenizer)

    return prepare


NO_LABELS = "gem_label"
"""Column with the tasks beside files for which the user names no column with labels."""
NO_LABEL_KEY = "the agent of gem_openrlhf needs the label of each row: --data.label_key label"


def plays_rows(agent_func_path: str | None) -> bool:
    """Return whether the value of ``--train.agent_func_path`` is the agent of gem_openrlhf."""
    return (
        bool(agent_func_path) and Path(str(agent_func_path)).resolve() == TRAINER.file_path("agent").resolve()
    )


def _own_row(row: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a row of a file with its source; the label of one that is no task becomes an `OwnLabel`."""
    label, source = "" if key == NO_LABELS else row.get(key), own_source(row)
    return row | {key: label if names_task(label) else OwnLabel(source, label), "datasource": source}


def _row_of(task: TaskRow, data: Any) -> dict[str, Any]:
    row = openrlhf_row(task)
    return {data.input_key: row["input"], data.label_key: row["label"], "datasource": row["datasource"]}
