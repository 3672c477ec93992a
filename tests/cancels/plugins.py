"""Cancel what a trainer's plugin awaits for an episode, at each of its awaits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gem_core import register
from gem_core.rollout import EnvPool
from tests.cancels.moments import Moment, Work, cancel_at
from tests.cancels.witness import Blocking, Witness

ENV_ID = "cancels:Plugin-v0"
"""A blocking environment of two turns."""

register(ENV_ID, lambda: Blocking(turns=2, seconds=0.001))


def cancel_everywhere(work: Work, pool: Callable[[], EnvPool | None]) -> int:
    """Cancel `work`, and check after each cancel that only idle environments are open; return the number.

    Args:
        work: Plays an episode of `ENV_ID`.
        pool: Returns the pool of the plugin, which all episodes share; None before the first one.
    """
    Witness.made.clear()
    canceled = 0

    async def one(moment: Moment) -> bool:
        ending = await cancel_at(work, moment)
        if ending.error is not None:
            raise ending.error
        assert ending.canceled == ending.reached, f"the cancel at {moment} was lost"
        end = time.monotonic() + 30
        while True:
            there = pool()
            idle = [env.unwrapped for envs in there._idle.values() for env in envs] if there else []
            left = [env for env in Witness.made if not env.closed and env not in idle]
            if not left or time.monotonic() > end:
                break
            await asyncio.sleep(0.001)
        assert not left, f"{len(left)} environments are open after {moment}"
        assert not any(env.beside or env.closed > 1 for env in Witness.made)
        assert there is None or there._playing == 0
        assert len(asyncio.all_tasks()) == 1
        return ending.reached

    for kind in ("suspended", "completing", "turn"):
        for at in range(1, 100):
            if not asyncio.run(one(Moment(kind, at))):
                break
            canceled += 1
    assert Witness.made
    return canceled
