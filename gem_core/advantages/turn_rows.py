"""Estimators on batches of turn rows instead of episode rows. Needs torch."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from gem_core.advantages.inputs import IDS, PER_EPISODE, entries, number_keys, plain, plain_id, plain_index
from gem_core.advantages.registry import Estimator
from gem_core.advantages.tensors import Advantages
from gem_core.advantages.turns import check_mask, check_tensor
from gem_core.errors import ConfigError


def by_episode(
    estimator: Estimator[..., Any],
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
        estimator: The estimator.
        token_rewards: (rows, tokens), any float dtype; the sum over a row is the turn's reward.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere. A row that is 0
            everywhere is not a turn.
        episodes: (rows,), the id of the episode that each row belongs to; see `inputs.plain_id`.
        turns: (rows,), the index of the row within its episode, counted from 0. The rows of an episode may be
            in any order and place.
        values: (rows, tokens), the critic's values, read at the first response token of each row.
        reward_components: (rows, tokens, components), summed over each row.
        state_keys: (rows,), a key of the state in which each row's turn began.
        options: Further keyword arguments of the estimator. Those with one entry per episode (`PER_EPISODE`)
            have one entry per row here.

    Returns:
        Advantages and returns as (rows, tokens) tensors on the device of the mask, and the statistics.

    Raises:
        ConfigError: The numbers of rows, episodes, turns, or other entries differ; two rows are the same
            turn; a turn of an episode is missing; rows of an episode contradict each other; or the mask holds
            values other than 0 and 1. The message names the rows.
        NonFiniteReward: The reward of a turn is not finite; the message names episode and turn by index.
    """
    for name, tensor in (("token_rewards", token_rewards), ("response_mask", response_mask)):
        check_tensor(name, tensor)
    check_mask(response_mask)
    shown = response_mask != 0
    on = shown.any(1).nonzero()[:, 0].tolist()
    layout = _Rows(on, episodes, turns, len(response_mask))
    rows, columns, shape = layout.rows, layout.columns, layout.shape

    def table(of_rows: torch.Tensor) -> torch.Tensor:
        """Arrange one entry per row as (episodes, turns)."""
        cells = torch.zeros((*shape, *of_rows.shape[1:]), dtype=torch.float64)
        cells[rows, columns] = of_rows.detach()[on].double().cpu()
        return cells

    turn_ids = torch.full(shape, -1)
    turn_ids[rows, columns] = columns
    for name in PER_EPISODE:
        if options.get(name) is not None:
            options[name] = layout.per_episode(name, options[name])
    if state_keys is not None:
        keys: list[list[Any]] = [[None] * of_episode for of_episode in (turn_ids >= 0).sum(1).tolist()]
        key_of_row = entries("state_keys", state_keys, len(response_mask), "row")
        for row, episode, turn in zip(on, rows.tolist(), columns.tolist(), strict=True):
            keys[episode][turn] = key_of_row[row]
        options["state_keys"] = keys
    if values is not None:
        first = shown.int().argmax(1, keepdim=True)
        options["values"] = table(values.gather(1, first)[:, 0])
    if reward_components is not None:
        options["reward_components"] = table(reward_components.double().sum(1))
    if "lengths" in estimator.needs:
        options["lengths"] = table(shown.sum(1))
    result = estimator.tensors(
        table(token_rewards.double().sum(1)), turn_ids >= 0, turn_ids=turn_ids, **options
    )

    def spread(of_turns: torch.Tensor) -> torch.Tensor:
        of_rows = torch.zeros(len(shown), dtype=of_turns.dtype)
        of_rows[on] = of_turns[rows, columns]
        return torch.where(shown, of_rows.to(shown.device)[:, None], 0.0)

    return Advantages(spread(result.advantages), spread(result.returns), result.stats)


class _Rows:
    """Which turn of which episode each row is, without the rows that are masked out.

    Args:
        on: Indices of the rows that are turns.
        episodes: Episode of each row.
        turns: Turn of each row.
        count: Number of rows.

    Attributes:
        rows: (turns,), the number of each turn's episode.
        columns: (turns,), the index of each turn within its episode.
        shape: Number of episodes, and of turns of the longest one.

    Raises:
        ConfigError: An entry is missing or wrong, two rows are the same turn, or a turn of an episode has no
            row; the message names episode and rows.
    """

    def __init__(self, on: list[int], episodes: Any, turns: Any, count: int) -> None:
        names = entries("episodes", episodes, count, "row")
        indices = entries("turns", turns, count, "row")
        self._on, self._count = on, count
        self._names = [plain_id("episodes", names[row], f"row {row}") for row in on]
        columns = [plain_index("turns", indices[row], f"row {row}") for row in on]
        row_of: dict[tuple[Hashable, int], int] = {}
        for row, name, turn in zip(on, self._names, columns, strict=True):
            if (first := row_of.setdefault((name, turn), row)) != row:
                raise ConfigError(
                    f"rows {first} and {row} are both turn {turn} of episode {name!r}: expected an id per "
                    "episode that is unique in the batch, such as (prompt, sample)"
                )
        for name, turn in row_of:
            if turn and (name, turn - 1) not in row_of:
                raise ConfigError(
                    f"episode {name!r}: row {row_of[name, turn]} is turn {turn}, but no row that is not "
                    f"masked out is turn {turn - 1}; turns count from 0 without a gap"
                )
        self._first: dict[Hashable, int] = {}
        for row, name in zip(on, self._names, strict=True):
            self._first.setdefault(name, row)
        self.rows = torch.from_numpy(number_keys(self._names))
        self.columns = torch.tensor(columns, dtype=torch.long)
        self.shape = (len(self._first), max(columns, default=-1) + 1)

    def per_episode(self, name: str, data: Any) -> list[Any]:
        """Return one entry per episode of an argument that has one per row.

        Raises:
            ConfigError: The number of entries is wrong, or two rows of an episode have different ones.
        """
        listed = entries(name, data, self._count, "row")
        for row, episode in zip(self._on, self._names, strict=True):
            place, first = f"row {row}", self._first[episode]
            value = plain_id(name, listed[row], place) if name in IDS else plain(listed[row])
            if row == first:
                listed[row] = value
            elif listed[first] != value:
                raise ConfigError(
                    f"{name}: rows {first} and {row} of episode {episode!r} have {listed[first]!r} and "
                    f"{value!r}: expected the same value in all rows of an episode"
                )
        return [listed[row] for row in self._first.values()]
