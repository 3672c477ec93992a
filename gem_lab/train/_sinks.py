"""Sinks for the metrics of a run: always JSON Lines, and optionally TensorBoard and Weights & Biases."""

from __future__ import annotations

import importlib
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import MissingDependency
from gem_lab._run_folders import append_line
from gem_lab.train._config import TrainConfig
from gem_lab.train._output import write_text


class MetricSinks:
    """Writes the metrics of each step, after resetting ``metrics.jsonl`` to `history`.

    Args:
        config: Options of the run, including the sinks.
        folder: Folder of the run.
        history: Metrics of the steps up to the checkpoint. Any further lines in the file belong to steps
            after the last checkpoint of a killed run, which will be repeated.
    """

    def __init__(self, config: TrainConfig, folder: Path, history: Sequence[dict[str, float]]) -> None:
        self._path = folder / "metrics.jsonl"
        write_text(self._path, "".join(json.dumps(metrics) + "\n" for metrics in history))
        self._tensorboard = self._wandb = None
        if config.tensorboard:
            self._tensorboard = _tensorboard(folder, len(history) + 1)
        if config.wandb:
            self._wandb = _wandb(config, folder, resumed=bool(history))

    def write(self, metrics: dict[str, float]) -> None:
        """Append the metrics of one step.

        Raises:
            OSError: The disk is full, or the file was removed; the error names it. Earlier lines are intact.
        """
        append_line(self._path, json.dumps(metrics))
        step = int(metrics["step"])
        if self._tensorboard is not None:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(metrics, step=step)

    def close(self) -> None:
        """Close all sinks."""
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()


def require_packages(config: TrainConfig) -> None:
    """Check for missing packages before the first step instead of after the last one.

    Raises:
        MissingDependency: A package is missing; the message contains the pip command.
    """
    needed = []
    if config.curve:
        needed.append(("matplotlib", "matplotlib", "'gem-core[train]'"))
    if config.tensorboard:
        needed.append(("torch.utils.tensorboard", "TensorBoard", "'gem-core[train]'"))
    if config.wandb:
        needed.append(("wandb", "Weights & Biases", "wandb"))
    for module, name, package in needed:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise MissingDependency(f"{name} is not installed: pip install {package}") from error


def _tensorboard(folder: Path, next_step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=next_step)


def _wandb(config: TrainConfig, folder: Path, resumed: bool) -> Any:
    import wandb

    # The id is stored in the folder, so that a resumed run continues the same W&B run.
    path = folder / "wandb_id"
    if not (resumed and path.exists()):
        write_text(path, uuid.uuid4().hex)
    return wandb.init(
        project=config.wandb,
        id=path.read_text(encoding="utf-8"),
        resume="allow",
        name=folder.name,
        config=config.to_dict(),
        dir=str(folder),
    )
