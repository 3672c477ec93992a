"""gem_core's advantages for a batch of ROLL, before ROLL copies or drops rows.

The rows may come from any of ROLL's env managers. Rows of our managers contain the turn and the reward of
each token. With other managers a turn is a run of response tokens, and its reward is in ROLL's
``step_scores``.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from gem_core.advantages._declaration import Need
from gem_core.advantages._tensors import Advantages, turn_ids_from_mask
from gem_core.errors import ConfigError
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.trainers import EstimatorChoice
from gem_core.trainers._failures import unpack_outline
from gem_roll._rows import EPISODE_JSON, TURN_IDS, TURNS


def compute_advantages(data: Any, choice: EstimatorChoice) -> Advantages:
    """Return advantages and returns, each (rows, tokens - 1) float32, shifted like ROLL's loss.

    Args:
        data: ROLL's `DataProto` with all collected rows.
        choice: Estimator with its options.

    Raises:
        ConfigError: The rows lack the rewards of the turns.
        NonFiniteReward: A reward is not finite; the message names the row and the turn.
    """
    mask = data.batch["response_mask"][:, 1:].bool()
    turn_ids, rewards = _turns(data, mask)
    columns = data.non_tensor_batch
    several = "step" in columns
    played = None
    if EPISODE_JSON in columns:
        played = played_rows(columns[EPISODE_JSON], columns["traj_id"], choice.needs)
    return choice.compute(
        rewards,
        mask,
        turn_ids=turn_ids,
        episodes=columns["traj_id"] if several else None,
        # ROLL's own managers return one row per turn.
        turns=columns.get(TURNS, [[int(step)] for step in columns["step"]]) if several else None,
        group_ids=list(columns["traj_group_id"]) if choice.needs_groups else None,
        played=played,
    )


def _turns(data: Any, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return turn ids and token rewards, each (rows, tokens - 1)."""
    if TURN_IDS in data.batch:
        return data.batch[TURN_IDS][:, 1:], data.batch["scores"][:, 1:]
    if "step_scores" not in data.non_tensor_batch:
        raise ConfigError(
            "the rows of this env manager do not identify turns: they have neither gem_roll's turn ids nor "
            "ROLL's step_scores"
        )
    begins = mask.clone()
    begins[:, 1:] &= ~mask[:, :-1]
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    for row, scores in enumerate(data.non_tensor_batch["step_scores"]):
        turn_rewards, turns = np.atleast_1d(scores).astype(float), int(begins[row].sum())
        if not turns:  # a placeholder for an episode that failed
            continue
        if turns != len(turn_rewards):
            raise ConfigError(
                f"row {row} has {turns} runs of response tokens, but {len(turn_rewards)} step_scores"
            )
        rewards[row, begins[row]] = torch.from_numpy(turn_rewards)
    return turn_ids_from_mask(mask), rewards


def played_rows(
    outlines: Iterable[str], keys: Sequence[Hashable], needs: Collection[Need]
) -> list[EpisodeTurns | None]:
    """Return the data about the episode of each row that an estimator needs.

    Args:
        outlines: Result of `pack_outline` in the first row of an episode, and an empty text in others.
        keys: Key of the episode of each row.
        needs: What the estimator needs.

    Returns:
        One entry per row; None for a row of an episode without an outline.
    """
    by_key = {
        key: EpisodeTurns.of(unpack_outline(text), needs)
        for key, text in zip(keys, outlines, strict=True)
        if text
    }
    return [by_key.get(key) for key in keys]
