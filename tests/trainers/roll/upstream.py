"""ROLL's own estimators as functions of a batch of `tests.trainers.upstream`.

The functions are called as in its agentic pipeline. Rows are episodes, or turns for step_reinforce and gigpo.
"""

from __future__ import annotations

import logging
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gem_roll._rows import object_array
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic import agentic_config
from roll.pipeline.agentic.agentic_config import RewardNormalizationConfig
from roll.pipeline.agentic.utils import (
    agentic_compute_advantage,
    compute_discounted_returns,
    compute_response_level_rewards,
)
from roll.utils.functionals import expand_to_token_level
from tensordict import TensorDict

from tests.trainers.upstream.batches import Batch

agentic_config.logger.setLevel(logging.ERROR)  # a step logs five lines about the normalization


@cache
def _normalization(grouping: str, method: str) -> Any:
    return RewardNormalizationConfig(grouping=grouping, method=method)


def _call(
    name: str, batch: Batch, *, grouping: str = "batch", method: str = "identity", whiten: bool = False
) -> Any:
    config = SimpleNamespace(
        adv_estimator=name, reward_normalization=_normalization(grouping, method), reward_clip=None,
        episode_reward_weight=1.0, step_reward_weight=1.0,
    )  # fmt: skip
    per_turn = name in ("step_reinforce", "gigpo")
    data = _turns(batch) if per_turn else _episodes(batch)
    data = compute_discounted_returns(data, name, batch.gamma)
    data, _ = compute_response_level_rewards(data, config)
    data.batch["token_level_rewards"] = expand_to_token_level(data)
    data = agentic_compute_advantage(
        data, 1.0 if per_turn else batch.gamma, batch.lam, name, whiten_advantages=whiten,
        pipeline_config=config,
    )  # fmt: skip
    advantages = data.batch["advantages"]
    return batch.spread(advantages[:, 0].numpy()) if per_turn else advantages


def _rows(mask: Any, scores: Any, columns: dict[str, Any], **tensors: torch.Tensor) -> Any:
    """Return rows with one token of prompt before the positions of the mask."""
    padded = torch.tensor(np.pad(mask, ((0, 0), (1, 0))))
    last = padded.shape[1] - 1 - padded.flip(1).long().argmax(1)
    positions = torch.arange(padded.shape[1]).expand(padded.shape)
    return DataProto(
        batch=TensorDict(
            {
                "response_mask": padded,
                "scores": torch.tensor(np.pad(scores, ((0, 0), (1, 0)))),
                "attention_mask": (positions <= last[:, None]).long(),
                "position_ids": positions.clone(),
                **tensors,
            },
            batch_size=len(padded),
        ),
        non_tensor_batch={name: object_array(list(values)) for name, values in columns.items()},
    )


def _episodes(batch: Batch) -> Any:
    values = {"values": torch.tensor(batch.values)} if batch.values.size else {}
    columns = {"traj_group_id": [f"g{group}" for group in batch.groups]}
    return _rows(batch.mask, batch.token_rewards, columns, **values)


def _turns(batch: Batch) -> Any:
    mask = np.arange(int(batch.lengths.max())) < batch.lengths[:, None]
    scores = np.zeros(mask.shape)
    scores[np.arange(len(mask)), batch.lengths - 1] = batch.rewards
    columns = {
        "traj_id": [f"t{row}" for row in batch.rows],
        "traj_group_id": [f"g{group}" for group in batch.groups[batch.rows]],
        "step": batch.turn_ids.tolist(),
        "step_scores": batch.rewards.tolist(),
        "episode_scores": batch.scores[batch.rows].tolist(),
    }
    if batch.keys:
        columns["state_hash"] = list(batch.keys)
    return _rows(mask, scores, columns)


CALLS = {
    "gae": partial(_call, "gae"),
    "reinforce": partial(_call, "reinforce"),
    "reinforce, whiten_advantages": partial(_call, "reinforce", whiten=True),
    "agentic_reinforce": partial(_call, "agentic_reinforce"),
    "grpo, grouping=traj_group_id, method=mean_std": partial(
        _call, "grpo", grouping="traj_group_id", method="mean_std"
    ),
    "grpo, grouping=traj_group_id, method=mean": partial(
        _call, "grpo", grouping="traj_group_id", method="mean"
    ),
    "grpo, grouping=batch, method=mean_std": partial(_call, "grpo", method="mean_std"),
    "step_reinforce, grouping=batch, method=mean_std": partial(_call, "step_reinforce", method="mean_std"),
    "gigpo, grouping=traj_group_id, method=mean_std": partial(
        _call, "gigpo", grouping="traj_group_id", method="mean_std"
    ),
}
"""By the name of the entry."""
