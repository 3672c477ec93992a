"""`gem-core conform --trainer verl`: estimators of verl's trainer, with one score per sample.

verl copies the score of a sample to all rows that an agent loop returns for it, and calls the estimator with
the keys of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from gem_lab._conform import ExactRows, GradedEstimator
from gem_verl import _estimators
from gem_verl._sessions import join_sessions


def estimators() -> dict[str, GradedEstimator]:
    """Return verl's own estimators that compare the samples of a prompt, and gem-core's in their place."""
    _estimators.register()
    inner = compute_advantage_for_multi_trajectories  # GEM's modes replace only the trainer's reference
    ours = join_sessions(inner)
    return {
        "verl grpo, without std": GradedEstimator("group mean", partial(_compute, inner, "grpo")),
        "verl rloo": GradedEstimator("leave one out", partial(_compute, inner, "rloo")),
        "gem_dr_grpo in verl": GradedEstimator("group mean", partial(_compute, ours, "gem_dr_grpo"), True),
        "gem_rloo in verl": GradedEstimator("leave one out", partial(_compute, ours, "gem_rloo"), True),
    }


def _compute(compute: Callable[..., Any], name: str, rows: ExactRows) -> torch.Tensor:
    scores = rows.scores()
    tensors = {
        "token_level_scores": scores,
        "token_level_rewards": scores,
        "response_mask": rows.mask,
    }
    data = DataProto.from_dict(tensors, non_tensors={"uid": np.array(rows.groups, dtype=object)})
    computed = compute(
        data,
        [f"{episode}_{index}" for episode, index in zip(rows.episodes, rows.indices, strict=True)],
        adv_estimator=name,
        norm_adv_by_std_in_grpo=False,
        config=OmegaConf.create({"gamma": 1.0, "lam": 1.0}),
    )
    advantages: torch.Tensor = computed.batch["advantages"]
    return advantages
