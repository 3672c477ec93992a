"""Episodes as rows of ROLL's batch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from roll.distributed.scheduler.protocol import DataProto
from roll.utils.functionals import pad_to_length
from roll.utils.hash_utils import compute_object_hash
from tensordict import TensorDict

from gem_core.advantages._declaration import Need
from gem_core.rollout import Episode, episode_metrics
from gem_core.rollout._rows import RowSplit
from gem_core.trainers._failures import pack_outline

TURN_IDS = "gem_turn_ids"
"""Key of an int64 tensor (rows, tokens): index of the turn within its row, -1 outside of responses."""
TURNS = "gem_turns"
"""Key of the indices within its episode of the turns in each row, if an episode may have several rows."""
EPISODE_JSON = "gem_episode"
"""Key of the episode's outline as JSON, which is empty except on the episode's first row."""


def pack_episode(
    episode: Episode,
    *,
    several: bool,
    split: RowSplit = "auto",
    length: int,
    pad_id: int,
    with_logprobs: bool,
    fields: dict[str, Any],
    needs: Collection[Need] = (),
) -> DataProto:
    """Return the rows of an episode in the format of ROLL's env managers.

    An episode that is not trainable becomes a masked row.

    Args:
        episode: The episode.
        several: Whether an episode may have several rows, which ROLL numbers by ``step``.
        split: How an episode with several rows is split; see `Episode.rows`.
        length: Number of tokens to which every row is padded.
        pad_id: Padding token.
        with_logprobs: Whether the batch has log-probs of the engine.
        fields: ROLL's ``env_ids``, ``group_ids``, and ``tags``, the same for all rows.
        needs: What the estimator needs.
    """
    rows = episode.rows(split, pad_id=pad_id)
    batch = {
        "input_ids": _padded([row.token_ids for row in rows], length, pad_id),
        "attention_mask": _padded([[1] * len(row) for row in rows], length, 0),
        "position_ids": _padded([list(range(len(row))) for row in rows], length, 0),
        "response_mask": _padded([list(map(bool, row.response_mask)) for row in rows], length, False),
        "prompt_mask": _padded([[True] * row.prompt_length for row in rows], length, False),
        "scores": _padded([row.rewards for row in rows], length, 0.0),
        TURN_IDS: _padded([row.turn_ids for row in rows], length, -1),
    }
    if with_logprobs:
        batch["infer_logprobs"] = _padded([row.logprobs_or_zeros() for row in rows], length, 0.0)[:, 1:]
    rewards = episode.rewards if episode.trainable else []
    columns: dict[str, list[Any]] = {name: [value] * len(rows) for name, value in fields.items()}
    columns["step_scores"] = [rewards]
    columns["episode_scores"] = [episode.total_reward if episode.trainable else 0.0] * len(rows)
    columns[EPISODE_JSON] = [pack_outline(episode, needs)] + [""] * (len(rows) - 1)
    if several:
        observations = [episode.turns[row.turns[0]].observation if row.turns else "" for row in rows]
        columns["step"] = list(range(len(rows)))
        columns["step_scores"] = [sum(row.rewards) for row in rows]
        columns["state_hash"] = [compute_object_hash(observation) for observation in observations]
        columns[TURNS] = [list(row.turns) for row in rows]
    metrics: dict[str, float] = {}
    for name, value in episode_metrics([episode]).items():
        metrics |= {name: value, name.replace("gem/", f"env/{fields['tags']}/", 1): value}
    metrics["env/response_length"] = sum(sum(row.response_mask) for row in rows) / len(rows)
    return DataProto(
        batch=TensorDict(batch, batch_size=len(rows)),
        non_tensor_batch={name: object_array(values) for name, values in columns.items()},
        meta_info={"metrics": metrics},
    )


def object_array(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return an object array with one entry per row, even if the entries are lists."""
    return np.fromiter(values, dtype=object, count=len(values))


def _padded(rows: list[list[Any]], length: int, value: Any) -> torch.Tensor:
    return torch.cat([pad_to_length(torch.tensor([row]), length=length, pad_value=value) for row in rows])
