"""Measures how much of a training step is GEM's own code, by replaying the episodes of a run.

Printed, never asserted, because a machine may be busy.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import torch
from gem_rl2._estimators import turn_ids_of

from gem_chat import AppendContext
from gem_core.advantages import rebn
from gem_core.rollout import EnvPool, Episode
from tests.trainers.replay import play_again


def gem_seconds(episodes: list[Episode], tokenizer: Any) -> float:
    """Return the seconds of GEM's code for these episodes of one step, the best of three runs."""
    context, pool = AppendContext(tokenizer), EnvPool()

    async def play() -> list[Episode]:
        return await asyncio.gather(*(play_again(episode, context, pool) for episode in episodes))

    def measure() -> float:
        start = time.perf_counter()
        rows = [episode.rows()[0] for episode in asyncio.run(play())]
        pad = torch.nn.utils.rnn.pad_sequence
        mask = pad([torch.tensor(row.response_mask) for row in rows], batch_first=True)
        rewards = pad([torch.tensor(row.rewards) for row in rows], batch_first=True)
        rebn.tensors(rewards, mask, turn_ids=turn_ids_of(mask, range(len(rows) + 1)), gamma=0.9)
        return time.perf_counter() - start

    measure()  # the first time includes imports and the creation of environments
    return min(measure() for _ in range(3))
