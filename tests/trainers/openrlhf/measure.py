"""Measures how much of a training step is GEM's own code, by replaying the episodes of a run.

The policy of the replay immediately returns the recorded responses, so the remaining time is for the
environments, contexts, rows, and estimator. Printed, never asserted, because a machine may be busy.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from gem_openrlhf._executor import lay_out

from gem_chat import AppendContext
from gem_core.rollout import EnvPool, Episode
from gem_core.tasks import TaskRow
from tests.trainers.openrlhf.args import experience_maker, experiences
from tests.trainers.replay import play_again


def gem_seconds(episodes: list[Episode], tokenizer: Any) -> float:
    """Return the CPU seconds of GEM's code for the batch of a step, the best of three runs."""
    context, pool = AppendContext(tokenizer), EnvPool()

    async def play() -> list[dict[str, Any]]:
        async def one(episode: Episode) -> dict[str, Any]:
            again = await play_again(episode, context, pool)
            task = TaskRow(env_id=again.env_id, env_kwargs={}, seed=again.seed or 0, index=0)
            return lay_out(again, task, "", pad_id=0, with_logprobs=True)

        return await asyncio.gather(*map(one, episodes))

    def once() -> float:
        start = time.process_time()
        responses = asyncio.run(play())
        spent = time.process_time() - start
        batch, maker = experiences(responses), experience_maker()
        start = time.process_time()
        maker.compute_advantages_and_returns([batch])
        return spent + time.process_time() - start

    once()  # includes imports and the creation of environments
    return min(once() for _ in range(3))
