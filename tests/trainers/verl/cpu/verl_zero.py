"""The control of the learning run: an estimator whose advantages are all zero."""

from __future__ import annotations

from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est


@register_adv_est("zeroed")
def zeroed(token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **unused: Any) -> Any:
    """Return zeros; everything else in the run is unchanged."""
    zeros = torch.zeros_like(token_level_rewards)
    return zeros, zeros
