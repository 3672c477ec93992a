"""Settings of the process of a training run."""

from __future__ import annotations

import contextlib
import gc

import torch

from gem_lab.train._config import TrainConfig


def tune_process(config: TrainConfig, resources: contextlib.ExitStack) -> None:
    """Set garbage collection, threads, and the seed of torch; `resources` restores the first two.

    Episodes consist of many small objects. Each full garbage collection that they cause would otherwise go
    through all objects of the imported packages, which takes a fifth of the time of a rollout.
    """
    if not gc.get_freeze_count():  # a caller that froze its objects keeps them frozen
        gc.freeze()
        resources.callback(gc.unfreeze)
    resources.callback(gc.set_threshold, *gc.get_threshold())
    gc.set_threshold(100_000)  # most new objects belong to episodes, which stay until the step ends
    resources.callback(torch.set_num_threads, torch.get_num_threads())
    if config.threads:
        torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
