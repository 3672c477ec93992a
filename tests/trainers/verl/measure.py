"""How much of a training step is GEM's own code: measured on the episodes of a run, played again.

The policy of the replay answers at once with what was sampled, so what is left is the environments,
the contexts, the rows and the estimator. Printed, never asserted: a machine may be busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gem_verl.loop import lay_out
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from gem_core.rollout import AppendContext, EnvPool, Episode, Generation
from gem_core.tasks import TaskRow
from tests.trainers.verl.configs import verl_config


class Recorded:
    """Answers with the turns of an episode."""

    def __init__(self, episode: Episode) -> None:
        self._turns = iter(episode.turns)

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        turn = next(self._turns)
        return Generation(turn.response_ids, turn.logprobs, turn.finish_reason)


def gem_seconds(episodes: list[Episode], tokenizer: Any) -> float:
    """Seconds of GEM's code for these episodes, the batch of a step."""
    context, pool = AppendContext(tokenizer), EnvPool()
    metrics = AgentLoopMetrics()

    async def play() -> list[Any]:
        async def one(episode: Episode) -> Any:
            task = TaskRow(
                env_id=episode.env_id, env_kwargs=episode.env_kwargs, seed=episode.seed or 0, index=0
            )
            again = await pool.play(
                task, Recorded(episode), context, max_turns=len(episode.turns), max_tokens_per_turn=4096
            )
            assert again.rewards == episode.rewards
            (row,) = lay_out(
                again, row_per_turn=False, metrics=metrics, extra_fields={}, pad_id=0, with_logprobs=True
            )
            return row.as_dict()

        return await asyncio.gather(*map(one, episodes))

    config = verl_config("algorithm.adv_estimator=rebn", "algorithm.gamma=0.9").algorithm
    asyncio.run(play())  # the first time pays for imports and environments
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
