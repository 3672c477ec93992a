"""verl's own estimators as functions of a batch of `tests.trainers.upstream`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from tests.trainers.upstream.batches import Batch


def _call(name: str, batch: Batch, **options: Any) -> torch.Tensor:
    config = AlgoConfig(gamma=batch.gamma, lam=batch.lam)
    mask = torch.tensor(batch.mask, dtype=torch.float64)
    arguments: dict[str, Any] = {"response_mask": mask, "config": config, "index": batch.groups, **options}
    if name == "gae":
        arguments = {"response_mask": mask, "values": torch.tensor(batch.values),
                     "gamma": batch.gamma, "lam": batch.lam}  # fmt: skip
    elif name == "remax":
        arguments["reward_baselines"] = torch.tensor(batch.baselines)
    elif name == "gdpo":
        arguments |= _components(batch)
    function = get_adv_estimator_fn(name)
    advantages, _ = function(token_level_rewards=torch.tensor(batch.token_rewards), **arguments)
    result: torch.Tensor = advantages
    return result


def _components(batch: Batch) -> dict[str, Any]:
    """Return the scores of the components as verl's reward manager does."""
    names = [f"reward {number}" for number in range(batch.components.shape[1])]
    scores = [np.bincount(batch.rows, turn_rewards, batch.episodes) for turn_rewards in batch.components.T]
    last = batch.mask.shape[1] - batch.mask[:, ::-1].argmax(1)
    attention = np.arange(batch.mask.shape[1]) < last[:, None]
    prompts = torch.ones(batch.episodes, 1, dtype=torch.long)
    return {
        "config": {"gdpo_reward_keys": names},
        "non_tensor_batch": dict(zip(names, scores, strict=True)),
        "batch": {
            "prompts": prompts, "attention_mask": torch.cat([prompts, torch.tensor(attention).long()], 1)
        },
    }  # fmt: skip


PLAIN = (
    "gae", "grpo", "grpo_vectorized", "gdpo", "grpo_passk", "reinforce_plus_plus_baseline", "rloo",
    "rloo_vectorized", "opo", "reinforce_plus_plus", "remax", "gpg",
)  # fmt: skip
CALLS: dict[str, Callable[[Batch], torch.Tensor]] = {
    **{name: partial(_call, name) for name in PLAIN},
    "grpo, norm_adv_by_std_in_grpo=False": partial(_call, "grpo", norm_adv_by_std_in_grpo=False),
}
"""By the name of the entry."""
