"""Rows of tokens, from which every trainer packs its batches.

    for row in episode.rows(pad_id=tokenizer.eos_token_id):
        batch.add(row.token_ids, row.response_mask, row.rewards, row.logprobs)

A turn continues the row that ends with its parent (`Turn.parent`); a turn whose prompt continues no row
begins another one. A conversation that only grows is a single row. Every sampled token is a response token of
exactly one row, behind the tokens that the policy saw; in all other rows, it is a part of the context.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from gem_core.rollout._turn import Turn, parents_of

RowSplit: TypeAlias = Literal["auto", "turn"]
"""How an episode is split into rows: "auto" for as few as its prompts allow, "turn" for one per turn."""
Span: TypeAlias = tuple[int, int]
"""Start and end (exclusive) of a response in its row, as token indices."""
Spans: TypeAlias = tuple[Sequence[Sequence[int]], int]
"""The spans of a row's responses (`Row.spans`), and the index of the token in a tensor's first column."""


@dataclass
class Row:
    """One row of a training batch. Every list has one entry per token.

    Attributes:
        token_ids: The prompt and all tokens after it.
        turn_ids: Index of the turn within this row on response tokens, -1 elsewhere.
        rewards: Reward of each turn on its last response token, 0.0 elsewhere.
        logprobs: Log-probability of each response token under the sampling policy, 0.0 elsewhere. None if
            the engine did not report them.
        prompt_length: Number of tokens before the first response.
        turns: Indices within the episode of the turns in this row, in ascending order; none in the masked row
            of an episode that is not trainable.
        images: Data URLs of the images whose placeholders are in the row, in order.
    """

    token_ids: list[int]
    turn_ids: list[int]
    rewards: list[float]
    logprobs: list[float] | None
    prompt_length: int
    turns: tuple[int, ...]
    images: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def response_mask(self) -> list[int]:
        """1 on response tokens, 0 elsewhere."""
        return [int(turn >= 0) for turn in self.turn_ids]

    @property
    def spans(self) -> list[Span]:
        """Start and end of the response of each turn in the row."""
        lengths, starts = [0] * len(self.turns), [-1] * len(self.turns)
        for position, turn in enumerate(self.turn_ids):
            if turn >= 0:
                starts[turn] = position if starts[turn] < 0 else starts[turn]
                lengths[turn] += 1
        spans: list[Span] = []
        end = self.prompt_length
        for start, length in zip(starts, lengths, strict=True):
            start = end if start < 0 else start  # an empty response has no token to find
            end = start + length
            spans.append((start, end))
        return spans

    @property
    def prompt_ids(self) -> list[int]:
        """The tokens before the first response."""
        return self.token_ids[: self.prompt_length]

    @property
    def response_ids(self) -> list[int]:
        """The tokens from the first response on, including the observations in between."""
        return self.token_ids[self.prompt_length :]

    def logprobs_or_zeros(self) -> list[float]:
        """Return `logprobs`, or zeros if the engine did not report them."""
        return [0.0] * len(self) if self.logprobs is None else self.logprobs

    @property
    def has_adjacent_turns(self) -> bool:
        """Whether a response directly follows another one, so that the mask shows them as one run."""
        return any(end == start for (_, end), (start, _) in itertools.pairwise(self.spans))

    def extend(self, turn: Turn, index: int) -> None:
        """Add the tokens of a turn, `Turn.context_ids` and the response.

        Args:
            turn: The turn.
            index: Index of the turn in its episode.
        """
        context, response = len(turn.context_ids), len(turn.response_ids)
        if not self.turns:
            self.prompt_length = len(self) + context
        self.token_ids += turn.context_ids + turn.response_ids
        self.turn_ids += [-1] * context + [len(self.turns)] * response
        self.rewards += [0.0] * (context + response - 1) + [turn.reward]
        if turn.logprobs is None:
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs += [0.0] * context + turn.logprobs
        self.turns += (index,)


def lay_out(turns: Sequence[Turn], split: RowSplit, images_of: Callable[[int], tuple[str, ...]]) -> list[Row]:
    """Return the rows of turns that hold tokens, in the order of their first turns.

    Args:
        turns: The turns of an episode.
        split: How to split them.
        images_of: Returns the images in the prompt of a turn.
    """
    parents = parents_of(turns)
    rows: list[Row] = []
    ends_with: dict[int, Row] = {}
    for index, (turn, parent) in enumerate(zip(turns, parents, strict=True)):
        row = ends_with.pop(parent, None) if parent is not None and split == "auto" else None
        if row is None:
            before = _tokens_until(turns, parents, parent)
            size = len(before)
            row = Row(before, [-1] * size, [0.0] * size, [0.0] * size, 0, ())
            rows.append(row)
        row.extend(turn, index)
        ends_with[index] = row
    for row in rows:
        row.images = images_of(row.turns[-1])
    return rows


def _tokens_until(turns: Sequence[Turn], parents: Sequence[int | None], last: int | None) -> list[int]:
    """Return the prompt and the response of a turn; nothing for None."""
    path: list[Turn] = []
    while last is not None:
        path.append(turns[last])
        last = parents[last]
    return [token for turn in reversed(path) for token in (*turn.context_ids, *turn.response_ids)]


def masked_row(pad_id: int) -> Row:
    """Return a row without effect on training: one `pad_id` each as prompt and response, both masked out."""
    return Row([pad_id, pad_id], [-1, -1], [0.0, 0.0], None, 1, ())


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
    part_ids = np.full(2 * len(edges) + 1, -1, dtype=dtype)
    part_ids[1::2] = np.arange(len(edges)) - np.repeat(np.cumsum(turns) - turns, turns)
    lengths = np.diff(edges.reshape(-1), prepend=0, append=len(rows) * width)
    return np.repeat(part_ids, lengths).reshape(len(rows), width)
