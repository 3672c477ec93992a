"""RL2's own estimators as functions of a batch of `tests.trainers.upstream`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import wandb
from gem_rl2._upstream import find

from tests.trainers.upstream.batches import Batch


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Log nothing; a mock would keep every call."""


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Set up a process group of one, and disable wandb, as RL2 requires."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(wandb, "log", new=_nothing),
    ):
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


_found = cache(find)  # it reads metadata and signatures, which takes longer than the estimators


def _call(estimator: str, batch: Batch, *, global_norm: bool = False, norm_var: bool = False) -> torch.Tensor:
    upstream = _found()
    adv = SimpleNamespace(
        estimator=estimator, gamma=batch.gamma, lamda=batch.lam, global_norm=global_norm, norm_var=norm_var,
        responses_per_prompt=batch.group_size,
    )  # fmt: skip
    whole = SimpleNamespace(adv=adv, actor=SimpleNamespace(kl=SimpleNamespace(coef=0.0)))
    mask = torch.tensor(batch.mask)
    tensors = {
        "states": torch.zeros(mask.shape, dtype=torch.long),
        "action_mask": mask.long(),
        "rewards": torch.tensor(batch.token_rewards).float(),
    }
    if estimator == "gae":
        values = torch.tensor(batch.values).float()
        tensors |= {"values": values, "old_values": values}
    bounds = torch.arange(batch.episodes + 1)
    upstream.compute_advantages(adv if upstream.is_index else whole, tensors, bounds, 1)
    return tensors["advantages"]


CALLS = {
    "gae": partial(_call, "gae"),
    "reinforce": partial(_call, "reinforce"),
    "reinforce, norm_var": partial(_call, "reinforce", norm_var=True),
    "reinforce, global_norm": partial(_call, "reinforce", global_norm=True),
    "reinforce, global_norm, norm_var": partial(_call, "reinforce", global_norm=True, norm_var=True),
}
"""By the name of the entry."""
