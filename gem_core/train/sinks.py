"""Where the metrics of a run go: JSON Lines always, TensorBoard and Weights & Biases when asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_core.errors import CheckpointError, MissingDependency
from gem_core.train.checkpoint import write_text
from gem_core.train.config import TrainConfig


class MetricSinks:
    """Writes one dict a step; ``metrics.jsonl`` is rewritten to `history` first.

    Args:
        config: Which sinks.
        folder: Of the run.
        history: Steps taken already. Lines beyond them belong to steps that a killed run took
            after its last checkpoint, and that will be taken again.
    """

    def __init__(self, config: TrainConfig, folder: Path, history: Sequence[dict[str, float]]) -> None:
        self._path = folder / "metrics.jsonl"
        write_text(self._path, "".join(json.dumps(metrics) + "\n" for metrics in history))
        self._file = self._path.open("a", encoding="utf-8")
        self._tensorboard = self._wandb = None
        if config.tensorboard:
            self._tensorboard = _tensorboard(folder, len(history) + 1)
        if config.wandb:
            self._wandb = _wandb(config, folder)

    def write(self, metrics: dict[str, float]) -> None:
        """Append one step.

        Raises:
            CheckpointError: The disk is full; what was written before is whole.
        """
        try:
            self._file.write(json.dumps(metrics) + "\n")
            self._file.flush()
        except OSError as error:
            raise CheckpointError(f"cannot write {self._path}: {error.strerror}") from error
        step = int(metrics["step"])
        if self._tensorboard is not None:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(metrics, step=step)

    def close(self) -> None:
        """Close everything."""
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()


def _tensorboard(folder: Path, next_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingDependency("TensorBoard is not installed: pip install 'gem-core[train]'") from error
    return SummaryWriter(str(folder / "tensorboard"), purge_step=next_step)


def _wandb(config: TrainConfig, folder: Path) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise MissingDependency("Weights & Biases is not installed: pip install wandb") from error
    # The folder's name identifies the run, so that a resumed one goes on in the same place.
    return wandb.init(project=config.wandb, name=folder.name, config=config.to_dict(), dir=str(folder))
