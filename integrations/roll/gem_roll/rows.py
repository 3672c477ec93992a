"""Episodes as rows of ROLL's batch, one an episode or one a turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from roll.distributed.scheduler.protocol import DataProto
from roll.utils.functionals import pad_to_length
from roll.utils.hash_utils import compute_object_hash
from tensordict import TensorDict

from gem_core.rollout import Episode, episode_metrics, without_tokens

TURN_IDS = "gem_turn_ids"
"""int64 (rows, tokens): number of the turn in its row, -1 off-response."""
OUTLINE = "gem_episode"
"""JSON of the episode's outline on its first row, empty on the others."""


@dataclass
class Row:
    """One row before it is padded; lists have an entry per token.

    Attributes:
        token_ids: Prompt and responses.
        turn_ids: Number of the turn in this row, -1 off-response; all -1 where nothing is to be trained.
        rewards: Of each turn on its last token.
        logprobs: Of the engine, 0.0 off-response; None where it was not asked.
        prompt_length: Tokens before the first response.
        step_scores: ROLL's: rewards of the row's turns, or the reward of the one turn.
    """

    token_ids: list[int]
    turn_ids: list[int]
    rewards: list[float]
    logprobs: list[float] | None
    prompt_length: int
    step_scores: Any = field(default_factory=list)


def trajectory_rows(episode: Episode, pad_id: int) -> list[Row]:
    """The episode as one row."""
    if not episode.trainable:
        return [_masked(pad_id, [])]
    made = episode.sequence()
    return [
        Row(made.token_ids, made.turn_ids, made.rewards, made.logprobs, made.prompt_length, episode.rewards)
    ]


def step_rows(episode: Episode, pad_id: int) -> list[Row]:
    """A row a turn; the prompt of each is everything before it."""
    if not episode.trainable:
        return [_masked(pad_id, 0.0)]
    rows = []
    for turn in episode.transitions():
        prompt, response = turn.prompt_ids, turn.response_ids
        off = len(prompt)
        rows.append(
            Row(
                [*prompt, *response],
                [-1] * off + [0] * len(response),
                [0.0] * (off + len(response) - 1) + [turn.reward],
                None if turn.logprobs is None else [0.0] * off + turn.logprobs,
                off,
                turn.reward,
            )
        )
    return rows


def _masked(pad_id: int, step_scores: Any) -> Row:
    """Stands for an episode that is not trainable, so that ROLL's groups are complete."""
    return Row([pad_id], [-1], [0.0], None, 1, step_scores)


def to_batch(
    rows: Sequence[Row],
    episode: Episode,
    *,
    length: int,
    pad_id: int,
    with_logprobs: bool,
    fields: dict[str, Any],
    by_step: bool,
) -> DataProto:
    """The rows of an episode as ROLL's env managers return them.

    Args:
        rows: Of the episode.
        episode: Where they come from.
        length: Tokens that every row is padded to.
        pad_id: Padding.
        with_logprobs: Whether the batch has log-probs of the engine.
        fields: ROLL's ``env_ids``, ``group_ids``, ``tags``, the same for all rows.
        by_step: Whether rows are turns, and have ROLL's ``step``.
    """
    batch = {
        "input_ids": _padded([row.token_ids for row in rows], length, pad_id),
        "attention_mask": _padded([[1] * len(row.token_ids) for row in rows], length, 0),
        "position_ids": _padded([list(range(len(row.token_ids))) for row in rows], length, 0),
        "response_mask": _padded([[turn >= 0 for turn in row.turn_ids] for row in rows], length, False),
        "prompt_mask": _padded([[True] * row.prompt_length for row in rows], length, False),
        "scores": _padded([row.rewards for row in rows], length, 0.0),
        TURN_IDS: _padded([row.turn_ids for row in rows], length, -1),
    }
    if with_logprobs:
        logprobs = [row.logprobs or [0.0] * len(row.token_ids) for row in rows]
        batch["infer_logprobs"] = _padded(logprobs, length, 0.0)[:, 1:]
    whole = episode.total_reward if episode.trainable else 0.0
    columns: dict[str, list[Any]] = {name: [value] * len(rows) for name, value in fields.items()}
    columns["step_scores"] = [row.step_scores for row in rows]
    columns["episode_scores"] = [whole] * len(rows)
    columns[OUTLINE] = [json.dumps(without_tokens(episode).to_dict())] + [""] * (len(rows) - 1)
    if by_step:
        columns["step"] = list(range(len(rows)))
        shown = [turn.observation for turn in episode.turns] if episode.trainable else [""]
        columns["state_hash"] = [compute_object_hash(observation) for observation in shown]
    metrics: dict[str, float] = {}
    for name, value in episode_metrics([episode]).items():
        metrics |= {name: value, name.replace("gem/", f"env/{fields['tags']}/", 1): value}
    metrics["env/response_length"] = float(sum(turn >= 0 for row in rows for turn in row.turn_ids)) / len(
        rows
    )
    return DataProto(
        batch=TensorDict(batch, batch_size=len(rows)),
        non_tensor_batch={name: column(values) for name, values in columns.items()},
        meta_info={"metrics": metrics},
    )


def column(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """An array of objects with an entry per row, lists included."""
    array = np.empty(len(values), dtype=object)
    for number, value in enumerate(values):
        array[number] = value
    return array


def _padded(rows: list[list[Any]], length: int, value: Any) -> torch.Tensor:
    tensors = [pad_to_length(torch.tensor([row]), length=length, pad_value=value) for row in rows]
    return torch.cat(tensors)
