"""The estimators on batches whose rows are single turns of episodes, not whole ones. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from gem_core.advantages.tensors import Advantages
from gem_core.errors import ConfigError


def by_episode(
    estimator: Callable[..., Advantages],
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    episodes: Sequence[Hashable],
    turns: Sequence[int],
    group_ids: Sequence[Hashable] | None = None,
    **options: Any,
) -> Advantages:
    """Put the rows of an episode side by side, a column a turn, and spread the credit over the rows.

    Args:
        estimator: A function of `gem_core.advantages.tensors`.
        token_rewards: (rows, tokens); their sum over a row is the turn's reward.
        response_mask: (rows, tokens), not 0 on response tokens. A row without any is no turn.
        episodes: The episode that each row belongs to; any names.
        turns: The row's place in its episode, from 0.
        group_ids: Of each row; None where the estimator compares no groups.
        options: Further arguments of the estimator.

    Returns:
        Advantages and returns, (rows, tokens), on the device of the mask.

    Raises:
        ConfigError: The numbers of rows, episodes and turns differ.
        NonFiniteReward: Of a turn; names episode and turn by their numbers.
    """
    if not len(episodes) == len(turns) == len(response_mask):
        raise ConfigError(
            f"{len(response_mask)} rows, but {len(episodes)} names of episodes and {len(turns)} turns"
        )
    numbers: dict[Hashable, int] = {}
    rows = torch.tensor([numbers.setdefault(name, len(numbers)) for name in episodes], dtype=torch.long)
    columns = torch.tensor([int(turn) for turn in turns], dtype=torch.long)
    shape = (len(numbers), int(columns.max()) + 1 if len(columns) else 0)
    rewards = torch.zeros(shape, dtype=torch.float64)
    rewards[rows, columns] = token_rewards.double().sum(1).cpu()
    turn_ids = torch.full(shape, -1)
    shown = response_mask != 0
    on = shown.any(1).cpu()
    turn_ids[rows[on], columns[on]] = columns[on]
    if group_ids is not None:
        group_of = dict(zip(episodes, group_ids, strict=True))
        options["group_ids"] = [group_of[name] for name in numbers]
    result = estimator(rewards, turn_ids >= 0, turn_ids=turn_ids, **options)

    def spread(values: torch.Tensor) -> torch.Tensor:
        return torch.where(shown, values[rows, columns].to(shown.device)[:, None], 0.0)

    return Advantages(spread(result.advantages), spread(result.returns), result.stats)
