"""Advantages of ROLL's batch as it was collected: those of gem_core's estimators.

The rows may come from any of ROLL's env managers. Ours say which tokens make up a turn and what it earned;
with others a turn is a run of response tokens, and its reward stands in ROLL's ``step_scores``.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from gem_core.advantages.registry import TRAINER_NAMES, get_estimator
from gem_core.advantages.single_turns import by_episode
from gem_core.advantages.tensors import Advantages, turn_ids_from_mask
from gem_core.errors import ConfigError
from gem_core.rollout import Episode
from gem_roll.rows import OUTLINE, TURN_IDS


def assign_credit(data: Any, name: str, gamma: float, options: dict[str, Any]) -> Advantages:
    """Advantages and returns, each (rows, tokens - 1) float32, as ROLL's loss is shifted.

    Args:
        data: ROLL's `DataProto`, all rows that were collected.
        name: One of `TRAINER_NAMES`.
        gamma: Discount per turn.
        options: Of the estimator.

    Raises:
        ConfigError: The rows do not say what each turn earned.
        NonFiniteReward: Names the row and the turn.
    """
    estimator = get_estimator(TRAINER_NAMES[name])
    function, options = estimator.tensors(), {"gamma": gamma, **options}
    mask = data.batch["response_mask"][:, 1:].bool()
    turn_ids, rewards = _turns(data, mask)
    if "group_ids" in estimator.needs:
        options["group_ids"] = list(data.non_tensor_batch["traj_group_id"])
    if "step" in data.non_tensor_batch:
        rows = {"episodes": data.non_tensor_batch["traj_id"], "turns": data.non_tensor_batch["step"]}
        return by_episode(function, rewards, mask, **rows, **options)
    result: Advantages = function(rewards, mask, turn_ids=turn_ids, **options)
    return result


def episodes_of(data: Any) -> list[Episode]:
    """Outlines of the episodes behind the rows of our env managers, nothing for those of others."""
    if OUTLINE not in data.non_tensor_batch:
        return []
    return [Episode.from_dict(json.loads(text)) for text in data.non_tensor_batch[OUTLINE] if text]


def _turns(data: Any, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn ids and token rewards, (rows, tokens - 1)."""
    if TURN_IDS in data.batch:
        return data.batch[TURN_IDS][:, 1:], data.batch["scores"][:, 1:]
    if "step_scores" not in data.non_tensor_batch:
        raise ConfigError(
            "the rows of this env manager say nothing about turns: neither gem_roll's turn ids nor ROLL's "
            "step_scores"
        )
    turn_ids = turn_ids_from_mask(mask)
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    for row, scores in enumerate(data.non_tensor_batch["step_scores"]):
        of_turns = [float(score) for score in (scores if hasattr(scores, "__len__") else [scores])]
        turns = int(turn_ids[row].max()) + 1 if mask.shape[1] else 0
        if turns != len(of_turns):
            raise ConfigError(
                f"row {row} has {turns} runs of response tokens, but {len(of_turns)} step_scores"
            )
        for turn, reward in enumerate(of_turns):
            rewards[row, int((turn_ids[row] == turn).nonzero()[0])] = reward
    return turn_ids, rewards
