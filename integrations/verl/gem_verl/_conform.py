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
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories as UPSTREAM

from gem_core.trainers import unpack_facts
from gem_core.trainers._facts import pack_facts, unpack_outlines
from gem_core.trainers._imports import replaced
from gem_lab._conform import ExactRows, GradedEstimator, estimators_of_plugin
from gem_verl import _estimators
from gem_verl._sessions import join_sessions, unpack_played


def estimators() -> dict[str, GradedEstimator]:
    """Return verl's own estimators that compare the samples of a prompt, and gem-core's in their place."""
    _estimators.register()
    return {
        "verl grpo, without std": GradedEstimator("group mean", partial(_compute, "grpo", 1.0)),
        "verl rloo": GradedEstimator("leave one out", partial(_compute, "rloo", 1.0)),
    } | estimators_of_plugin("verl", _ours)


def _ours(name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    """Compute an advantage per episode on the rows of any agent loop, and one per turn on those of GEM's."""
    if name != "rebn":
        return _compute(name, gamma, rows, join_sessions(UPSTREAM))
    packed = [facts for one in rows.played for facts in pack_facts(one, one.rows(pad_id=1))]
    facts = unpack_facts(packed, rows.episodes, rows.indices, lambda: rows.mask)
    facts.played = unpack_played(packed, rows.episodes, unpack_outlines(packed), ())
    with replaced(_estimators, "batch_facts", facts):
        return _compute(name, gamma, rows, UPSTREAM, rows.rewards)


def _compute(
    name: str,
    gamma: float,
    rows: ExactRows,
    compute: Callable[..., Any] = UPSTREAM,
    rewards: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the advantages; `rewards`: None for the score of each sample, copied to its rows."""
    scores = rows.scores() if rewards is None else rewards
    tensors = {"token_level_scores": scores, "token_level_rewards": scores, "response_mask": rows.mask}
    data = DataProto.from_dict(tensors, non_tensors={"uid": np.array(rows.groups, dtype=object)})
    computed = compute(
        data,
        [f"{episode}_{index}" for episode, index in zip(rows.episodes, rows.indices, strict=True)],
        adv_estimator=name,
        norm_adv_by_std_in_grpo=False,
        config=OmegaConf.create({"gamma": gamma, "lam": 1.0}),
    )
    advantages: torch.Tensor = computed.batch["advantages"]
    return advantages
