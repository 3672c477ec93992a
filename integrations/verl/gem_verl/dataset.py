"""`GemDataset`: tasks generated on the fly from environment ids, for ``data.custom_cls`` of a verl config.

    data.custom_cls.path=pkg://gem_verl.dataset data.custom_cls.name=GemDataset
    data.train_files='["game:GuessTheNumber-v0-easy=2","game:Mastermind-v0-easy"]'
    data.val_files='["game:GuessTheNumber-v0-easy"]'

``data.train_max_samples`` is the number of training tasks, ``data.val_max_samples`` the number of evaluation
tasks, shared evenly by the environments; ``data.seed`` chooses the training seeds. Without
``data.train_max_samples``, an epoch of a dataset plays every training item once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.trainers.options import option_at
from gem_core.trainers.tasks import split_tasks
from gem_verl.options import V1_ONLY, check_data
from gem_verl.rows import ROW_COLUMNS, verl_row

_OTHER_PROGRAMS = (
    "verl.experimental.one_step_off_policy.ray_trainer",
    "verl.experimental.fully_async_policy.fully_async_rollouter",
)


class GemDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Tasks of a mix of environments, for training or for validation.

    Training and validation share neither seeds nor items. Validation always plays the same tasks of each
    environment.

    Args:
        data_files: Environments, each ``ID``, ``ID=WEIGHT``, or ``ID(key=value, ...)=WEIGHT``.
        tokenizer: Ignored.
        config: verl's section ``data``; the dataset is for validation if `data_files` is its ``val_files``.
        processor: Ignored.
        max_samples: Maximum number of tasks; -1 means the default of `split_tasks`.

    Raises:
        GemError: An environment cannot be built (each one is tried once) or has no training items.
        ConfigError: ``train_files`` and ``val_files`` are indistinguishable, or a program of verl other than
            `main_ppo` is running.
    """

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
        self.split: Split = _split(data_files, config)
        number, seed = max_samples if max_samples > 0 else None, option_at(config, "seed", 0)
        self.tasks = split_tasks(data_files, self.split, number, seed=seed)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = verl_row(self.tasks[number], self.split)
        row["raw_prompt"] = row.pop("prompt")
        row["index"] = row["extra_info"]["index"]
        row["dummy_tensor"] = torch.tensor([0], dtype=torch.uint8)  # verl needs one tensor per row
        return row


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


def check_dataset(config: Any, dataset: Any, *, for_training: bool) -> None:
    """Check the rows of a dataset with `check_data`; a dataset that is neither ours nor verl's is not read.

    Args:
        config: The whole verl config.
        dataset: Dataset that verl created from the config.
        for_training: As in `check_data`.
    """
    rows: Iterable[Mapping[str, Any]] = ()
    if isinstance(dataset, GemDataset):
        rows = map(verl_row, dataset.tasks)
    elif hasattr(dataset, "dataframe"):
        names = [name for name in ROW_COLUMNS if name in dataset.dataframe.column_names]
        rows = dataset.dataframe.select_columns(names)
    check_data(config, rows, for_training=for_training)
