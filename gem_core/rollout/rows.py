"""Episodes as rows of tokens, from which every trainer packs its batches.

    for row in rows_of(episode, "turn", pad_id=tokenizer.eos_token_id):
        batch.add(row.token_ids, row.response_mask, row.rewards, row.logprobs)

An episode becomes one row (``rows="episode"``) or one row per turn, whose prompt is everything that the
policy saw (``rows="turn"``). Both hold the same response tokens, log-probs, and rewards.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from gem_core.rollout.trajectory import Episode, Row

RowKind: TypeAlias = Literal["episode", "turn"]
"""What a row of a training batch holds: a whole episode or a single turn."""
Spans: TypeAlias = tuple[Sequence[Sequence[int]], int]
"""The spans of a row's responses (`Row.spans`), and the index of the token in a tensor's first column."""


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


def turn_ids_of(rows: Sequence[Spans], width: int) -> npt.NDArray[np.signedinteger[Any]]:
    """Return the turn ids of rows, or of parts of them, from the spans of their responses.

    Args:
        rows: For each row, the spans of its responses and the index of the first token of the part.
        width: Number of turn ids per row, padding included.

    Returns:
        (rows, width): index of the turn on response tokens, -1 elsewhere; int8, int16, or int32, whichever
        is the smallest that fits, because large batches are limited by memory bandwidth.
    """
    turns = np.array([len(spans) for spans, _ in rows], dtype=np.int64)
    numbers = itertools.chain.from_iterable(itertools.chain.from_iterable(spans) for spans, _ in rows)
    edges = np.fromiter(numbers, dtype=np.int64).reshape(-1, 2)
    edges -= np.repeat(np.array([start for _, start in rows], dtype=np.int64), turns)[:, None]
    np.clip(edges, 0, width, out=edges)
    edges += np.repeat(np.arange(len(rows)) * width, turns)[:, None]
    # All rows, one after the other, alternate between other tokens and the tokens of a turn.
    most = turns.max(initial=0)
    dtype = next(kind for kind in (np.int8, np.int16, np.int32) if most <= np.iinfo(kind).max)
    of_parts = np.full(2 * len(edges) + 1, -1, dtype=dtype)
    of_parts[1::2] = np.arange(len(edges)) - np.repeat(np.cumsum(turns) - turns, turns)
    lengths = np.diff(edges.reshape(-1), prepend=0, append=len(rows) * width)
    return np.repeat(of_parts, lengths).reshape(len(rows), width)
