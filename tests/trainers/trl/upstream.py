"""TRL's own estimators as functions of a batch of `tests.trainers.upstream`.

TRL computes them inside a long method; its statements run on their own here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer
from trl.trainer.utils import nanstd

from tests.trainers.upstream.batches import Batch
from tests.trainers.upstream.extract import extract


def _grpo(batch: Batch, *, scale: str = "group", combine: str = "sum_then_normalize") -> torch.Tensor:
    scores = batch.scores[:, None]
    if combine == "normalize_then_sum":
        columns = [np.bincount(batch.rows, of, batch.episodes) for of in batch.components.T]
        scores = np.stack(columns, axis=1)
    scope = {
        "torch": torch,
        "nanstd": nanstd,
        "device": torch.device("cpu"),
        "num_generations": batch.group_size,
        "rewards_per_func": torch.tensor(scores),
        "unscorable_mask": torch.zeros(batch.episodes, dtype=torch.bool),
        "self": SimpleNamespace(
            multi_objective_aggregation=combine,
            scale_rewards=scale,
            reward_weights=torch.ones(scores.shape[1], dtype=torch.float64),
            reward_funcs=[None] * scores.shape[1],
        ),
    }
    function = GRPOTrainer._generate_and_score_completions
    exec(extract(function, "if self.multi_objective_aggregation == 'sum_then_normalize'"), scope)
    exec(extract(function, "advantages = torch.nan_to_num"), scope)
    return _on_tokens(scope["advantages"], batch)


def _rloo(batch: Batch, *, normalize: bool = False) -> torch.Tensor:
    scope = {
        "torch": torch,
        "nanstd": nanstd,
        "num_generations": batch.group_size,
        "rewards": torch.tensor(batch.scores),
        "self": SimpleNamespace(normalize_advantages=normalize),
    }
    function = RLOOTrainer._generate_and_score_completions
    exec(extract(function, "grouped_rewards =", "advantages = torch.nan_to_num"), scope)
    return _on_tokens(scope["advantages"], batch)


def _on_tokens(per_episode: object, batch: Batch) -> torch.Tensor:
    assert isinstance(per_episode, torch.Tensor)
    return per_episode[:, None] * torch.tensor(batch.mask)


CALLS: dict[str, Callable[[Batch], torch.Tensor]] = {
    **{f"grpo, scale_rewards={scale}": partial(_grpo, scale=scale) for scale in ("group", "none", "batch")},
    "grpo, multi_objective_aggregation=normalize_then_sum": partial(_grpo, combine="normalize_then_sum"),
    "rloo": _rloo,
    "rloo, normalize_advantages": partial(_rloo, normalize=True),
}
"""By the name of the entry."""
