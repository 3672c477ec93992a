"""Rows of tokens made from the episodes of a golden case or of a hypothesis strategy."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.advantages.oracle import GOLDEN

CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
CASE_NAMES = [case["name"] for case in CASES]


class Rows(NamedTuple):
    """Lists of (rows, tokens); an untrainable episode is a row with an all-zero mask."""

    token_rewards: list[list[float]]
    response_mask: list[list[int]]
    turn_ids: list[list[int]]
    values: list[list[float]]


def rows(episodes: list[dict[str, Any]]) -> Rows:
    """Return right-padded rows: context, response, context, ... with rewards on last response tokens.

    Values are on first response tokens; all other entries of `values` are a conspicuous number.
    """
    made = Rows([], [], [], [])
    for episode in episodes:
        rewards: list[float] = []
        ids: list[int] = []
        values: list[float] = []
        lengths = zip(episode["context_lengths"], episode["response_lengths"], strict=True)
        for turn, (context, response) in enumerate(lengths):
            rewards += [0.0] * (context + response - 1) + [episode["rewards"][turn]]
            ids += [-1] * context + [turn] * response
            values += [777.0] * context + [episode["values"][turn]] + [777.0] * (response - 1)
        if not episode["trainable"]:
            ids = [-1] * len(ids)
        made.token_rewards.append(rewards)
        made.turn_ids.append(ids)
        made.response_mask.append([int(turn >= 0) for turn in ids])
        made.values.append(values)
    width = 1 + max((len(row) for row in made.turn_ids), default=0)
    for lists, pad in zip(made, (0.0, 0, -1, 777.0), strict=True):
        for row in lists:
            row += [pad] * (width - len(row))
    return made


def trainable(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [episode for episode in episodes if episode["trainable"]]


reward = st.floats(-100, 100, width=32)
gamma = st.sampled_from([0.0, 0.5, 0.9, 0.999, 1.0])
batch = st.lists(st.lists(reward, min_size=1, max_size=6), min_size=1, max_size=8)
"""Turn rewards of a batch of ragged episodes."""
