"""Estimators on batches in which an episode has several rows. Needs torch."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch

from gem_core.advantages._batch import IntArray
from gem_core.advantages._inputs import IDS, PER_EPISODE, entries, number_keys, plain, plain_id, plain_index
from gem_core.advantages._registry import Estimator
from gem_core.advantages._tensors import Advantages
from gem_core.advantages._turns import TurnLayout, check_tensor
from gem_core.errors import ConfigError


def by_episode(
    estimator: Estimator[..., Any],
    token_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    *,
    episodes: Sequence[Hashable],
    turns: Sequence[int | Sequence[int]],
    turn_ids: torch.Tensor | None = None,
    values: torch.Tensor | None = None,
    reward_components: torch.Tensor | None = None,
    state_keys: Sequence[Sequence[Hashable]] | None = None,
    **options: Any,
) -> Advantages:
    """Join the rows of each episode, one column per turn, and copy the advantages back to the rows.

    The rows may be in any order, and each may hold any of the turns of its episode; the advantage of a turn
    is the same in every layout.

    Args:
        estimator: The estimator.
        token_rewards: (rows, tokens), any float dtype. The reward of a turn is the sum from its first token
            up to the next turn in the row.
        response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere. A row that is 0
            everywhere has no turns.
        episodes: (rows,), the id of the episode that each row belongs to; see `inputs.plain_id`.
        turns: (rows,), the indices within their episode of the turns in each row, in the order of the row;
            one integer for a row with one turn. Each turn of an episode is in exactly one row.
        turn_ids: (rows, tokens), index of the turn within its row, -1 elsewhere. None treats each run of ones
            in the mask as a turn.
        values: (rows, tokens), the critic's values, read at the first response token of each turn.
        reward_components: (rows, tokens, components), summed like `token_rewards`.
        state_keys: (rows,), for each row, the keys of the states in which its turns began.
        options: Further keyword arguments of the estimator. Those with one entry per episode (`PER_EPISODE`)
            have one entry per row here.

    Returns:
        Advantages and returns as (rows, tokens) tensors on the device of the mask, and the statistics.

    Raises:
        ConfigError: The numbers of rows, episodes, turns, or other entries differ; two rows hold the same
            turn; a turn of an episode is missing; rows of an episode contradict each other; or an argument is
            wrong as in `TurnLayout`. The message names the rows.
        NonFiniteReward: The reward of a turn is not finite; the message names row and turn.
    """
    for name, tensor in (("token_rewards", token_rewards), ("response_mask", response_mask)):
        check_tensor(name, tensor)
    layout = TurnLayout(response_mask, turn_ids, token_rewards)
    join = _Join(layout, episodes, turns)
    cells = torch.from_numpy(join.episodes), torch.from_numpy(join.columns)
    shape = len(join.first_rows), int(join.columns.max(initial=-1)) + 1

    def table(per_turn: Any) -> torch.Tensor:
        """Arrange one entry per turn of the rows as (episodes, turns)."""
        numbers = torch.from_numpy(np.asarray(per_turn, dtype=np.float64))
        return numbers.new_zeros((*shape, *numbers.shape[1:])).index_put(cells, numbers)

    ids = torch.full(shape, -1).index_put(cells, cells[1])
    for name in PER_EPISODE:
        if options.get(name) is not None:
            options[name] = join.per_episode(name, options[name])
    if state_keys is not None:
        options["state_keys"] = join.turn_keys("state_keys", state_keys)
    if values is not None:
        options["values"] = table(layout.per_turn("values", values))
    if reward_components is not None:
        options["reward_components"] = table(layout.components("reward_components", reward_components))
    if "lengths" in estimator.needs:
        options["lengths"] = table(layout.lengths(None))
    result = estimator.tensors(table(layout.rewards), ids >= 0, turn_ids=ids, **options)

    def spread(cell_values: torch.Tensor) -> torch.Tensor:
        return layout.spread(cell_values[cells].numpy())

    return Advantages(spread(result.advantages), spread(result.returns), result.stats)


class _Join:
    """Which turn of which episode each turn of the rows is.

    Args:
        layout: The turns of the rows.
        episodes: Episode of each row.
        turns: Indices of the turns of each row.

    Attributes:
        episodes: int64 (turns,), the number of each turn's episode.
        columns: int64 (turns,), the index of each turn within its episode.
        first_rows: The first row of each episode, by the id of the episode.

    Raises:
        ConfigError: An entry is missing or wrong, two rows hold the same turn, or a turn of an episode has no
            row; the message names episode and rows.
    """

    def __init__(self, layout: TurnLayout, episodes: Any, turns: Any) -> None:
        count = layout.shape[0]
        self._count = count
        names, listed = entries("episodes", episodes, count, "row"), entries("turns", turns, count, "row")
        self._rows: list[int] = layout.rows[layout.starts].tolist()
        self._names = [plain_id("episodes", names[row], f"row {row}") for row in self._rows]
        self.first_rows: dict[Hashable, int] = {}
        self._cells: list[tuple[Hashable, int]] = []
        row_of: dict[tuple[Hashable, int], int] = {}
        self._sizes: list[int] = np.bincount(layout.rows, minlength=count)[self._rows].tolist()
        for row, name, size in zip(self._rows, self._names, self._sizes, strict=True):
            self.first_rows.setdefault(name, row)
            indices = _indices(listed[row], row)
            if len(indices) != size:
                raise ConfigError(
                    f"turns: row {row} of episode {name!r} lists the turns {indices}, but its mask or turn "
                    f"ids have {size} turns; turns without a token between them need turn_ids"
                )
            for turn in indices:
                if (name, turn) in row_of:
                    first = row_of[name, turn]
                    where = f"rows {first} and {row} both hold" if first != row else f"row {row} holds twice"
                    raise ConfigError(
                        f"{where} turn {turn} of episode {name!r}: expected an id per episode that is unique "
                        "in the batch, such as (prompt, sample), and each turn in one row"
                    )
                row_of[name, turn] = row
                self._cells.append((name, turn))
        for name, turn in row_of:
            if turn and (name, turn - 1) not in row_of:
                raise ConfigError(
                    f"episode {name!r}: row {row_of[name, turn]} holds turn {turn}, but no row that is not "
                    f"masked out holds turn {turn - 1}; turns count from 0 without a gap"
                )
        self.episodes: IntArray = number_keys(name for name, _ in self._cells)
        self.columns: IntArray = np.array([turn for _, turn in self._cells], dtype=np.int64)

    def per_episode(self, name: str, data: Any) -> list[Any]:
        """Return one entry per episode of an argument that has one per row.

        Raises:
            ConfigError: The number of entries is wrong, or two rows of an episode have different ones.
        """
        listed = entries(name, data, self._count, "row")
        for row, episode in zip(self._rows, self._names, strict=True):
            place, first = f"row {row}", self.first_rows[episode]
            value = plain_id(name, listed[row], place) if name in IDS else plain(listed[row])
            if row == first:
                listed[row] = value
            elif listed[first] != value:
                raise ConfigError(
                    f"{name}: rows {first} and {row} of episode {episode!r} have {listed[first]!r} and "
                    f"{value!r}: expected the same value in all rows of an episode"
                )
        return [listed[row] for row in self.first_rows.values()]

    def turn_keys(self, name: str, data: Any) -> list[list[Any]]:
        """Return the keys of the turns of each episode, in order, of an argument with one list per row.

        Raises:
            ConfigError: A row has another number of keys than turns.
        """
        listed = entries(name, data, self._count, "row")
        keys: list[Any] = []
        for row, size in zip(self._rows, self._sizes, strict=True):
            keys += entries(f"{name}: row {row}", listed[row], size, "turn")
        by_cell = dict(zip(self._cells, keys, strict=True))
        by_episode_name: dict[Hashable, list[Any]] = {name: [] for name in self.first_rows}
        for episode, turn in sorted(by_cell, key=lambda cell: cell[1]):
            by_episode_name[episode].append(by_cell[episode, turn])
        return list(by_episode_name.values())


def _indices(value: Any, row: int) -> list[int]:
    """Return the indices of the turns in a row."""
    value = plain(value)
    several = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(several, list | tuple | range):
        several = [several]
    return [plain_index("turns", turn, f"row {row}") for turn in several]
