"""Episodes as rows of tokens, from which every trainer packs its batches.

    for row in rows_of(episode, "turn", pad_id=tokenizer.eos_token_id):
        batch.add(row.token_ids, row.response_mask, row.rewards, row.logprobs)

An episode becomes one row (``rows="episode"``) or one row per turn, whose prompt is everything that the
policy saw (``rows="turn"``). Both hold the same response tokens, log-probs and rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from gem_core.rollout.trajectory import Episode, Row

RowKind: TypeAlias = Literal["episode", "turn"]
"""What a row of a training batch holds: a whole episode or a single turn."""


def rows_of(episode: Episode, rows: RowKind = "episode", *, pad_id: int | None = None) -> list[Row]:
    """Return the rows of an episode.

    Args:
        episode: The episode, in a context mode that holds tokens.
        rows: "episode" for one row, "turn" for one row per turn.
        pad_id: Token of the masked row that represents an episode that is not trainable, for trainers that
            expect a row from every episode. None returns no row for such an episode.

    Raises:
        ConfigError: ``rows="episode"`` with a rebuilt context, whose turns share no prefix; or the episode
            holds messages instead of tokens.
    """
    if not episode.trainable:
        return [] if pad_id is None else [masked_row(pad_id)]
    return [episode.episode_row()] if rows == "episode" else episode.turn_rows()


def masked_row(pad_id: int) -> Row:
    """Return a row without effect on training: one `pad_id` each as prompt and response, both masked out."""
    return Row([pad_id, pad_id], [-1, -1], [0.0, 0.0], None, 1, range(0))


def turn_ids_of(spans: Sequence[Sequence[int]], width: int, *, start: int = 0) -> npt.NDArray[np.int64]:
    """Return the turn ids of a row, or of a part of it, from the spans of its responses.

    Args:
        spans: Start and end of each response, as in `Row.spans`.
        width: Number of turn ids to return, padding included.
        start: Index of the first token of the part, such as `Row.prompt_length`.

    Returns:
        Array of shape (width,): index of the turn on response tokens, -1 elsewhere.
    """
    turn_ids = np.full(width, -1)
    for turn, (first, end) in enumerate(spans):
        turn_ids[first - start : end - start] = turn
    return turn_ids
