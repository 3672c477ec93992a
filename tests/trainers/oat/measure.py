"""Measures how much of a training step is GEM's own code, by replaying the episodes of a run.

The policy of the replay immediately returns the recorded responses, so the remaining time is for the
environments, contexts, rows, and estimator. Printed, never asserted, because a machine may be busy.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

import torch
from gem_oat._rows import draw_turns, pack_turns, turn_values

from gem_chat import AppendContext
from gem_core.rollout import EnvPool, Episode
from gem_core.trainers import read_estimator
from tests.trainers.replay import play_again


def gem_seconds(episodes: list[Episode], tokenizer: Any) -> float:
    """Return the seconds of GEM's code for these episodes of one step."""
    context, pool, choice = AppendContext(tokenizer), EnvPool(), read_estimator("rebn", {}, gamma=0.9)

    async def play() -> list[Episode]:
        return await asyncio.gather(*(play_again(episode, context, pool) for episode in episodes))

    def step() -> float:
        start = time.perf_counter()
        again = asyncio.run(play())
        values, stats = turn_values(again, choice)
        count = sum(map(len, values))
        rows = draw_turns(pack_turns(again, values, stats, mask_cut=False, info={}), count, Random(0))
        returns = torch.tensor([[row.rewards[-1]] for row in rows])
        choice.compute(returns, torch.ones_like(returns), stats=stats)
        return time.perf_counter() - start

    return min(step() for _ in range(4))  # the first time includes imports and the creation of environments
