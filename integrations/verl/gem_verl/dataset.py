"""`GemDataset`: tasks generated on the fly from environment ids, for ``data.custom_cls`` of a verl config.

    data.custom_cls.path=pkg://gem_verl.dataset data.custom_cls.name=GemDataset
    data.train_files='["game:GuessTheNumber-v0-easy=2","game:Mastermind-v0-easy"]'
    data.val_files='["game:GuessTheNumber-v0-easy"]'

``data.train_max_samples`` is the number of training tasks, ``data.val_max_samples`` the number of evaluation
tasks, shared evenly by the environments; ``data.seed`` chooses the training seeds. Without
``data.train_max_samples``, an epoch of a data set plays every training item once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from gem_core.core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow
from gem_core.trainers.tasks import evaluation_tasks, training_tasks
from gem_verl.options import V1_ONLY
from gem_verl.rows import verl_row

_OTHER_PROGRAMS = (
    "verl.experimental.one_step_off_policy.ray_trainer",
    "verl.experimental.fully_async_policy.fully_async_rollouter",
)
VAL_TASKS = 256


class GemDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Tasks of a mix of environments, for training or for validation.

    Training and validation share neither seeds nor items. Validation always plays the same tasks of each
    environment.

    Args:
        data_files: Environments, each ``ID``, ``ID=WEIGHT`` or ``ID(key=value, ...)=WEIGHT``.
        tokenizer: Ignored.
        config: verl's section ``data``; the data set is for validation if `data_files` is its ``val_files``.
        processor: Ignored.
        max_samples: Maximum number of tasks. -1 means `VAL_TASKS` for validation. For training it means
            the default of `training_tasks`.

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
        names = [data_files] if isinstance(data_files, str) else list(data_files)
        sources = [EnvChoice.parse(str(name)) for name in names]
        for source in sources:
            source.check_buildable()
        self.split: Split = _split(data_files, config)
        self.tasks: list[TaskRow]
        if self.split == "train":
            seed = (config.get("seed") if config is not None else None) or 0
            self.tasks = training_tasks(sources, max_samples if max_samples > 0 else None, seed=seed)
        else:
            self.tasks = evaluation_tasks(sources, max_samples if max_samples > 0 else VAL_TASKS)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = verl_row(self.tasks[number], self.split)
        row["raw_prompt"] = row.pop("prompt")
        row["index"] = row["extra_info"]["index"]
        row["dummy_tensor"] = torch.tensor([0], dtype=torch.uint8)  # verl needs one tensor per row
        return row


def _split(data_files: Any, config: Any) -> Split:
    """Return which of the two data sets this is; verl builds both in the same way, from one config."""
    if config is None:
        return "train"
    train, val = config.get("train_files"), config.get("val_files")
    if isinstance(data_files, str):
        if train == val:
            raise ConfigError(
                "data.train_files and data.val_files are the same text; write them as lists, "
                f"data.val_files='[\"{data_files}\"]', so that validation gets evaluation seeds"
            )
        return "eval" if data_files == val else "train"
    return "eval" if data_files is val else "train"
