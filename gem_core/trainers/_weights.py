"""Factors with which a loss that averages over rows weighs tokens as if each episode were one row.

A mean over all tokens of a batch does not depend on rows. With R rows of L_row response tokens, which are E
episodes of L_episode response tokens, a loss of the other two kinds does:

| average | weight of a token | weight if an episode is one row | factor |
|---|---|---|---|
| "tokens" | the same in all rows | the same | 1 |
| "row means" | 1 / (R * L_row) | 1 / (E * L_episode) | (L_row / L_episode) * (R / E) |
| "row sums" | 1 / R | 1 / E | R / E |

The advantages of a row are multiplied by its factor. That is exact if the loss of a token is positively
homogeneous in its advantage, as those of REINFORCE and PPO are. Terms without an advantage, such as a KL
penalty in the loss, are not scaled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal, TypeAlias

RowAverage: TypeAlias = Literal["tokens", "row means", "row sums"]
"""What a loss is a mean over: all tokens, rows of the means of their tokens, or rows of the sums."""


def row_factors(average: RowAverage, lengths: Sequence[int], episodes: Sequence[Hashable]) -> list[float]:
    """Return the factor of each row.

    Args:
        average: What the loss is a mean over.
        lengths: Number of response tokens of each row; a row of 0 tokens counts neither as a row nor for its
            episode.
        episodes: The episode of each row.
    """
    tokens: defaultdict[Hashable, int] = defaultdict(int)
    for length, episode in zip(lengths, episodes, strict=True):
        if length:
            tokens[episode] += length
    rows = sum(length > 0 for length in lengths)
    if average == "tokens" or rows == len(tokens):
        return [1.0] * len(lengths)
    shares = [
        length / tokens[episode] if average == "row means" and length else 1.0
        for length, episode in zip(lengths, episodes, strict=True)
    ]
    return [share * rows / len(tokens) for share in shares]
