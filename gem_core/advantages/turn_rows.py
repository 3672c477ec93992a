"""Estimators on batches of turn rows instead of episode rows. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from gem_core.advantages.tensors import Advantages
from gem_core.advantages.turns import check_mask, check_tensor
from gem_core.errors import ConfigError

PER_EPISODE = ("group_ids", "env_ids", "agent_ids", "baselines", "bootstrap", "truncated")
"""Arguments of estimators with one entry per episode."""


def by_episode(
    estimator: Callable[..., Advantages],
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    episodes: Sequence[Hashable],
    turns: Sequence[int],
    values: torch.Tensor | None = None,
    reward_components: torch.Tensor | None = None,
    state_keys: Sequence[Hashable] | None = None,
    **options: Any,
) -> Advantages:
    """Join the rows of each episode, one column per turn, and copy the advantages back to the rows.

    Args:
        estimator: A function of `gem_core.advantages.tensors`.
        token_rewards: (rows, tokens), any float dtype; the sum over a row is the turn's reward.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere. A row that is 0
            everywhere is not a turn.
        episodes: (rows,), a hashable id of the episode that each row belongs to.
        turns: (rows,), the index of the row within its episode, counted from 0.
        values: (rows, tokens), the critic's values, read at the first response token of each row.
        reward_components: (rows, tokens, components), summed over each row.
        state_keys: (rows,), a hashable key of the state in which each row's turn began.
        options: Further keyword arguments of the estimator. Those with one entry per episode (`PER_EPISODE`)
            have one entry per row here.

    Returns:
        Advantages and returns as (rows, tokens) tensors on the device of the mask, and the statistics.

    Raises:
        ConfigError: The numbers of rows, episodes, turns, or other entries differ, or the mask holds values
            other than 0 and 1.
        NonFiniteReward: The reward of a turn is not finite; the message names episode and turn by index.
    """
    for name, tensor in (("token_rewards", token_rewards), ("response_mask", response_mask)):
        check_tensor(name, tensor)
    if not len(episodes) == len(turns) == len(response_mask):
        raise ConfigError(
            f"{len(response_mask)} rows, but {len(episodes)} episode ids and {len(turns)} turns"
        )
    check_mask(response_mask)
    numbers: dict[Hashable, int] = {}
    rows = torch.tensor([numbers.setdefault(name, len(numbers)) for name in episodes], dtype=torch.long)
    columns = torch.tensor([int(turn) for turn in turns], dtype=torch.long)
    shape = (len(numbers), int(columns.max()) + 1 if len(columns) else 0)
    shown = response_mask != 0
    on = shown.any(1).cpu()

    def table(of_rows: torch.Tensor) -> torch.Tensor:
        """Arrange one entry per row as (episodes, turns)."""
        entries = torch.zeros((*shape, *of_rows.shape[1:]), dtype=torch.float64)
        entries[rows, columns] = of_rows.detach().double().cpu()
        return entries

    turn_ids = torch.full(shape, -1)
    turn_ids[rows[on], columns[on]] = columns[on]
    for name in PER_EPISODE:
        if options.get(name) is not None:
            entry_of = dict(zip(episodes, _entries(name, options[name], len(rows)), strict=True))
            options[name] = [entry_of[episode] for episode in numbers]
    if state_keys is not None:
        keys: list[dict[int, Hashable]] = [{} for _ in numbers]
        state_key_of_row = _entries("state_keys", state_keys, len(rows))
        for row in on.nonzero()[:, 0].tolist():
            keys[int(rows[row])][int(columns[row])] = state_key_of_row[row]
        options["state_keys"] = [[of_episode[turn] for turn in sorted(of_episode)] for of_episode in keys]
    if values is not None:
        first = shown.int().argmax(1, keepdim=True)
        options["values"] = table(values.gather(1, first)[:, 0])
    if reward_components is not None:
        options["reward_components"] = table(reward_components.double().sum(1))
    if getattr(estimator, "takes_lengths", False):
        options["lengths"] = table(shown.sum(1))
    result = estimator(table(token_rewards.double().sum(1)), turn_ids >= 0, turn_ids=turn_ids, **options)

    def spread(of_turns: torch.Tensor) -> torch.Tensor:
        return torch.where(shown, of_turns[rows, columns].to(shown.device)[:, None], 0.0)

    return Advantages(spread(result.advantages), spread(result.returns), result.stats)


def _entries(name: str, entries: torch.Tensor | Sequence[Any], rows: int) -> list[Any]:
    """Return the entries as a list, or raise a ConfigError unless there is one per row."""
    if len(entries) != rows:
        raise ConfigError(f"{name}: {len(entries)} entries for {rows} rows")
    return entries.tolist() if isinstance(entries, torch.Tensor) else list(entries)
