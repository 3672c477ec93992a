"""Estimators on batches of turn rows instead of episode rows. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from gem_core.advantages.tensors import Advantages
from gem_core.advantages.turns import check_mask, check_tensor
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
    """Join the rows of each episode, one column per turn, and spread the advantages over the rows again.

    Args:
        estimator: A function of `gem_core.advantages.tensors`.
        token_rewards: (rows, tokens), any float dtype; the sum over a row is the turn's reward.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere. A row that is 0
            everywhere is not a turn.
        episodes: (rows,), a hashable id of the episode that each row belongs to.
        turns: (rows,), the index of the row within its episode, counted from 0.
        group_ids: (rows,), a hashable id of the group of each row; None for estimators without groups.
        options: Further keyword arguments of the estimator.

    Returns:
        Advantages and returns as (rows, tokens) tensors on the device of the mask, and the statistics.

    Raises:
        ConfigError: The numbers of rows, episodes and turns differ, or the mask holds values other than 0
            and 1.
        NonFiniteReward: The reward of a turn is not finite; the message names episode and turn by index.
    """
    for name, tensor in (("token_rewards", token_rewards), ("response_mask", response_mask)):
        check_tensor(name, tensor)
    if not len(episodes) == len(turns) == len(response_mask):
        raise ConfigError(
            f"{len(response_mask)} rows, but {len(episodes)} names of episodes and {len(turns)} turns"
        )
    check_mask(response_mask)
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
