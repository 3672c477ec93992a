"""Episodes as rows of tokens: the one layout that every trainer's batch is packed from.

    for row in rows_of(episode, "turn", pad_id=tokenizer.eos_token_id):
        batch.add(row.token_ids, row.response_mask, row.rewards, row.logprobs)

An episode is one row (``rows="episode"``), or each of its turns is a row of its own, whose prompt is
everything the policy saw (``rows="turn"``). Both hold the same response tokens, log-probs and rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gem_core.rollout.trajectory import Episode

RowKind: TypeAlias = Literal["episode", "turn"]
"""What a row of a training batch is."""

Span: TypeAlias = tuple[int, int]
"""First token of a response in its row, and the token after its last one."""


@dataclass
class Row:
    """One row of a training batch. Every list has one entry per token.

    Attributes:
        token_ids: The prompt and everything after it.
        turn_ids: Index of the turn within this row on response tokens, -1 elsewhere. All -1 in the row of
            an episode that is not trainable.
        rewards: Reward of each turn on its last response token, 0.0 elsewhere.
        logprobs: Log-probability of each response token under the sampling policy, 0.0 elsewhere. None when
            the engine did not report them.
        prompt_length: Number of tokens before the first response.
        turns: Numbers, within the episode, of the turns in this row.
        images: Data URLs of the images whose placeholders are in the row, in order.
    """

    token_ids: list[int]
    turn_ids: list[int]
    rewards: list[float]
    logprobs: list[float] | None
    prompt_length: int
    turns: range
    images: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def response_mask(self) -> list[int]:
        """1 on response tokens, 0 elsewhere."""
        return [int(turn >= 0) for turn in self.turn_ids]

    @property
    def spans(self) -> list[Span]:
        """Where the response of each turn starts and ends in the row."""
        spans: list[Span] = []
        end = self.prompt_length
        for turn in range(len(self.turns)):
            length = self.turn_ids.count(turn)
            start = self.turn_ids.index(turn) if length else end  # an empty response has no token to find
            end = start + length
            spans.append((start, end))
        return spans

    @property
    def prompt_ids(self) -> list[int]:
        """The tokens before the first response."""
        return self.token_ids[: self.prompt_length]

    @property
    def response_ids(self) -> list[int]:
        """The tokens from the first response on, including what the environment said in between."""
        return self.token_ids[self.prompt_length :]

    def logprobs_or_zeros(self) -> list[float]:
        """`logprobs`, or zeros when the engine did not report them."""
        return [0.0] * len(self) if self.logprobs is None else self.logprobs


def rows_of(episode: Episode, rows: RowKind = "episode", *, pad_id: int | None = None) -> list[Row]:
    """Return the rows of an episode.

    Args:
        episode: The episode, in a context mode that holds tokens.
        rows: "episode" for one row, "turn" for one row per turn.
        pad_id: Token of the masked row that stands for an episode that is not trainable, in a trainer that
            expects a row from every episode. None leaves such an episode without a row.

    Raises:
        ConfigError: ``rows="episode"`` with a rebuilt context, whose turns share no prefix; or the episode
            holds messages instead of tokens.
    """
    if not episode.trainable:
        return [] if pad_id is None else [masked_row(pad_id)]
    if rows == "episode":
        whole = episode.sequence()
        return [
            Row(
                whole.token_ids,
                whole.turn_ids,
                whole.rewards,
                whole.logprobs,
                whole.prompt_length,
                range(len(episode.turns)),
                episode.images(),
            )
        ]
    turns = []
    for turn in episode.transitions():
        prompt, response = len(turn.prompt_ids), len(turn.response_ids)
        turns.append(
            Row(
                [*turn.prompt_ids, *turn.response_ids],
                [-1] * prompt + [0] * response,
                [0.0] * (prompt + response - 1) + [turn.reward],
                None if turn.logprobs is None else [0.0] * prompt + list(turn.logprobs),
                prompt,
                range(turn.turn, turn.turn + 1),
                episode.images(turn.turn),
            )
        )
    return turns


def masked_row(pad_id: int) -> Row:
    """Return a row that trains nothing: a prompt and a response of one `pad_id` each, both masked out."""
    return Row([pad_id, pad_id], [-1, -1], [0.0, 0.0], None, 1, range(0))


def turn_ids_of(spans: Sequence[Sequence[int]], width: int, *, start: int = 0) -> list[int]:
    """Return the turn ids of a row, or of a part of it, from the spans of its responses.

    Args:
        spans: As in `Row.spans`.
        width: Number of tokens to return, padding included.
        start: Token of the row that comes first, such as `Row.prompt_length`.

    Returns:
        Index of the turn on response tokens, -1 elsewhere.
    """
    turn_ids = [-1] * width
    for turn, (first, end) in enumerate(spans):
        turn_ids[first - start : end - start] = [turn] * (end - first)
    return turn_ids
