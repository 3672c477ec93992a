"""Tasks as rows of a TRL dataset. The prompt is the task, because a rollout function receives only it."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_chat._files import check_ending
from gem_core._core import Split
from gem_core._tasks import check_labels
from gem_core._util.checks import expected
from gem_core._util.files import write_json_lines
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, read_task
from gem_core.trainers._tasks import check_tasks, read_rows, split_tasks

REMEDY = (
    "make the rows with gem_trl.tasks or `gem-core export --to trl`; for rows of your own, pass reward_funcs"
)
TEXTS = ("string", "large_string")
SOURCE = "gem_source"
"""Column of `mix`: the dataset or the environment of a row."""
A_DATASET = (
    "a datasets.Dataset or IterableDataset (one split of a DatasetDict; gem_trl.tasks makes one from "
    "environments), or a list of datasets and environments"
)
NO_IMAGES = "gem_trl trains on text only; train on it with verl, OpenRLHF, or `gem-core train`"


def tasks(envs: str | Sequence[str], num: int, *, seed: int = 0, split: Split = "train") -> Any:
    """Return a `datasets.Dataset` with one row per task; TRL repeats each row ``num_generations`` times.

    Args:
        envs: Environments, each ``ID``, ``ID=WEIGHT``, or ``ID(key=value, ...)=WEIGHT``.
        num: Number of tasks. Evaluation tasks are shared evenly by the environments, and there are fewer if
            a dataset has fewer evaluation items.
        seed: Random seed for the training tasks. Evaluation tasks are always the same.
        split: Whether the tasks are for training or evaluation, which never share a task.

    Raises:
        GemError: An environment cannot be built, or `num` is out of range.
    """
    from datasets import Dataset

    rows = split_tasks(envs, split, num, seed=seed, no_images=NO_IMAGES)
    return Dataset.from_list([task_prompt(task) for task in rows])


def mix(parts: Any, name: str, split: Split, *, seed: int = 0) -> Any:
    """Return one dataset for a list of datasets and environments.

        mix([questions, "game:GuessTheNumber-v0=0.25"], "train_dataset", "train")

    An environment of weight w gets w times as many tasks as the datasets have rows. The parts are spread
    evenly over the result, so that it needs no shuffling.

    Args:
        parts: Datasets with the column ``prompt``, and environments as in `tasks`; one dataset or stream,
            which is returned unchanged; or, for evaluation, a mapping from names to any of these.
        name: Name of the argument, for messages and for datasets without a name.
        split: Whether the tasks are for training or evaluation.
        seed: Random seed for training tasks.

    Raises:
        ConfigError: The parts cannot be mixed; the message names the part.
        GemError: An environment cannot be built.
    """
    import datasets
    import torch

    if isinstance(parts, Mapping) and parts and split == "eval":
        return {key: mix(part, f"{name}[{key!r}]", split, seed=seed) for key, part in parts.items()}
    if not isinstance(parts, list | tuple):
        if not isinstance(parts, datasets.Dataset | datasets.IterableDataset | torch.utils.data.Dataset):
            raise expected(name, parts, A_DATASET)
        return parts
    own = {number: part for number, part in enumerate(parts) if not isinstance(part, str)}
    choices = [EnvChoice.parse(part) for part in parts if isinstance(part, str)]
    check_labels(choices)
    weights: dict[str, float] = {}
    for choice in choices:  # an environment that is listed several times has the sum of its weights
        weights[choice.text] = weights.get(choice.text, 0.0) + choice.weight
    if not own:
        raise ConfigError(
            f"{name}={list(parts)}: expected at least one dataset; for environments alone, use tasks"
        )
    for number, part in own.items():
        _check_part(part, f"{name}[{number}]")
    form = next(iter(own.values())).features["prompt"]
    fields = getattr(form, "feature", None)
    listed = isinstance(fields, Mapping) and "role" in fields and _takes_text(fields.get("content"))
    if not (listed or _takes_text(form)):
        raise ConfigError(
            f"{name}: expected texts, or lists of messages with texts, in the column prompt, not {form}"
        )
    rows = sum(map(len, own.values()))
    names = Counter([*map(_dataset_name, own.values()), *(choice.label for choice in choices)])
    made = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            choice = EnvChoice.parse(part)
            if (weight := weights.pop(choice.text, None)) is None:
                continue
            wanted = max(1, round(weight * rows))
            chosen = split_tasks([choice.text], split, wanted, seed=seed, no_images=NO_IMAGES)
            texts = [task_prompt(task)["prompt"] for task in chosen]
            prompts = texts if isinstance(form, datasets.Value) else [_message(text, form) for text in texts]
            columns = {"prompt": prompts, SOURCE: [EnvChoice.of(task).label for task in chosen]}
            features = datasets.Features({"prompt": form, SOURCE: datasets.Value("string")})
            made.append(datasets.Dataset.from_dict(columns, features=features))
        else:
            own_name = _dataset_name(part)
            source = own_name if own_name and names[own_name] == 1 else f"{name}[{number}]"
            made.append(part.add_column(SOURCE, [source] * len(part)))
    places = [
        ((row + 0.5) / len(part), number) for number, part in enumerate(made) for row in range(len(part))
    ]
    order = sorted(range(len(places)), key=places.__getitem__)
    try:
        return datasets.concatenate_datasets(made).select(order)
    except ValueError as error:
        raise ConfigError(f"{name}: a column needs one type in all datasets: {error}") from error


def _takes_text(feature: Any) -> bool:
    return getattr(feature, "dtype", "") in TEXTS


def _dataset_name(part: Any) -> str | None:
    """Return the name of a dataset on the Hub or in a folder; None without one."""
    info = part.info
    return info.dataset_name if info.dataset_name != info.builder_name else None  # "json" is no name


def _check_part(part: Any, place: str) -> None:
    if not hasattr(part, "features") or not hasattr(part, "__len__"):
        raise ConfigError(
            f"{place}: expected a datasets.Dataset or an environment, not {type(part).__name__}"
        )
    if "prompt" not in part.features:
        raise ConfigError(f"{place}: expected the column prompt; it has {', '.join(part.features)}")
    if not len(part):
        raise ConfigError(f"{place} has no rows; omit it")
    if SOURCE in part.features:
        raise ConfigError(f"{place}: omit or rename the column {SOURCE}, which gem_trl adds itself")
    if {"image", "images"} & set(part.features):
        raise ConfigError(f"{place} has images, but {NO_IMAGES}")


def _message(text: str, form: Any) -> list[dict[str, Any]]:
    """Return a text as a user's message with all fields of the column ``prompt``."""
    return [{**dict.fromkeys(form.feature), "role": "user", "content": text}]


def task_prompt(task: TaskRow) -> dict[str, str]:
    """Return the row of a task."""
    return {"prompt": json.dumps(task)}


def write(rows: Iterable[TaskRow], path: str | Path) -> None:
    """Write JSON Lines for ``datasets.load_dataset``, one row per task, as in `tasks`.

    Raises:
        ConfigError: It would not recognize the format from the name of the file.
    """
    check_ending(path, "TRL", ".jsonl", ".json")
    write_json_lines(path, map(task_prompt, rows))


def prompt_task(prompt: Any) -> TaskRow:
    """Return the task in a prompt, which is a text or, in a mix with conversations, a message.

    Raises:
        ConfigError: The prompt is not a task.
    """
    try:
        is_message = isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], Mapping)
        fields = json.loads(prompt[0].get("content") if is_message else prompt)
        if not isinstance(fields, Mapping):
            raise ConfigError("it is not a JSON object")
        return read_task(fields)
    except (TypeError, ValueError, ConfigError) as error:
        raise ConfigError(f"the prompt {str(prompt)!r:.80} is not a task ({error}); {REMEDY}") from None


def is_task(prompt: Any) -> bool:
    """Return whether a prompt is a task, and not a prompt of the user's."""
    try:
        prompt_task(prompt)
    except ConfigError:
        return False
    return True


def source_rows(dataset: Any, name: str) -> list[tuple[str, bool]]:
    """Return the source of each row, and whether the row is a task; only the first row of a stream.

    Args:
        dataset: Dataset, or mapping from names to datasets; None has no rows.
        name: Name of the argument, for datasets without a name.

    Raises:
        ConfigError: A dataset has no rows, or a row has no prompt.
    """
    if isinstance(dataset, Mapping):
        return [row for key, part in dataset.items() for row in source_rows(part, f"{name}[{key!r}]")]
    rows = _rows(dataset) if hasattr(dataset, "__len__") else itertools.islice(dataset or (), 1)
    sources = []
    for number, row in enumerate(rows):
        if not isinstance(prompt := row.get("prompt"), str | list):
            raise expected(f"{name}, row {number}: prompt", prompt, "a text or a list of messages")
        sources.append((row_source(row, name), is_task(prompt)))
    if dataset is not None and not sources:
        raise ConfigError(f"{name} has no rows: expected one or more")
    return sources


def _rows(dataset: Any) -> Iterable[Mapping[str, Any]]:
    """Return the rows with the columns that name the source, because decoding long texts takes time."""
    names = [
        name for name in getattr(dataset, "column_names", ()) if name in ("prompt", SOURCE, "environment")
    ]
    return dataset.select_columns(names) if names else dataset  # type: ignore[no-any-return]


def row_source(row: Mapping[str, Any], name: str) -> str:
    """Return the source of a row: its environment, or the dataset that it comes from.

    Args:
        row: Row of a dataset.
        name: Name of the argument with the dataset, for a row that names no source.
    """
    if is_task(row.get("prompt")):
        return EnvChoice.of(prompt_task(row["prompt"])).label
    return str(row.get(SOURCE) or row.get("environment") or name)


def check_dataset(
    dataset: Any, name: str, wrappers: str, *, for_training: bool, own_rows: bool = False
) -> None:
    """Check the tasks of a dataset, and build each environment once; a stream is checked when it is played.

    Args:
        dataset: Dataset, or mapping from names to datasets; None checks nothing.
        name: Name of the argument, for messages.
        wrappers: Wrappers around every environment.
        for_training: Whether to reject tasks with evaluation items.
        own_rows: Whether rows that are not tasks are the user's own, which are not checked.

    Raises:
        GemError: A row is not a task, or its environment cannot be built.
    """
    if isinstance(dataset, Mapping):
        for key, part in dataset.items():
            place = f"{name}[{key!r}]"
            check_dataset(part, place, wrappers, for_training=for_training, own_rows=own_rows)
    elif hasattr(dataset, "__len__"):
        prompts = ((number, row.get("prompt")) for number, row in enumerate(_rows(dataset)))
        kept = ((number, prompt) for number, prompt in prompts if not own_rows or is_task(prompt))
        rows = ((f"{name}, row {number}", prompt) for number, prompt in kept)
        located = read_rows(rows, prompt_task)
        check_tasks(located, wrappers, no_images=NO_IMAGES, for_training=for_training)
