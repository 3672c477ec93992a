"""Measures how much of a training step is GEM's own code, by playing the episodes of a run again.

The policy of the replay immediately returns the recorded responses, so the remaining time is for the
environments, contexts, rows, and estimator. Printed, never asserted, because a machine may be busy.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import torch
from gem_verl._loop import lay_out
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from gem_chat import AppendContext
from gem_core.rollout import EnvPool, Episode
from tests.trainers.replay import play_again
from tests.trainers.verl.configs import verl_config


def gem_seconds(episodes: list[Episode], tokenizer: Any) -> float:
    """Return the seconds of GEM's code for the batch of a step, the best of three measurements."""
    context, pool = AppendContext(tokenizer), EnvPool()
    metrics = AgentLoopMetrics()
    config = verl_config("algorithm.adv_estimator=rebn", "algorithm.gamma=0.9").algorithm

    async def row_of(episode: Episode) -> Any:
        again = await play_again(episode, context, pool)
        (row,) = lay_out(again, split="auto", metrics=metrics, extra_fields={}, pad_id=0, with_logprobs=True)
        return row.as_dict()

    async def play() -> list[Any]:
        return await asyncio.gather(*map(row_of, episodes))

    def measure() -> float:
        start = time.perf_counter()
        rows = asyncio.run(play())
        rewards, mask = (
            torch.nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True)
            for name in ("rm_scores", "response_mask")
        )
        get_adv_estimator_fn("rebn")(
            token_level_rewards=rewards, response_mask=mask, config=config, index=np.array(["x"] * len(rows))
        )
        return time.perf_counter() - start

    measure()  # the first time includes imports and the creation of environments
    return min(measure() for _ in range(3))
