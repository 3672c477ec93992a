"""One cancel and what it left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

from gem_core.rollout import EnvPool
from tests.cancels.moments import Moment, cancel_at
from tests.cancels.scenes import Scene, Speaker
from tests.cancels.witness import Witness


def moments(scene: Scene, number: int, seed: str, seconds: float) -> Generator[Moment, bool, None]:
    """Yield moments of an episode that takes `seconds`; it is sent whether the moment was reached."""
    for kind in ("suspended", "completing"):
        for at in range(1, 200):
            if not (yield Moment(kind, at)):
                break
    for at in range(1, scene.turns):
        if not (yield Moment("turn", at)):
            break
    draw = random.Random(seed)
    for _ in range(number):
        yield Moment("seconds", draw.uniform(0, seconds))


async def trial(scene: Scene, moment: Moment, patience: float) -> tuple[bool, Counter[str]]:
    """Cancel the episodes of a scene; return whether the moment was reached, and what was left behind.

    Args:
        scene: What is canceled.
        moment: When.
        patience: Seconds in which everything must be given back.
    """
    Witness.made.clear()
    policy, left = Speaker(scene.text), Counter[str]()
    most = 2 * scene.together
    pool = EnvPool(max_envs=most)
    there = scene.outside()  # left by an earlier cancel
    ending = await cancel_at(lambda: scene.play(pool, policy), moment)
    if ending.error is not None:
        raise ending.error
    left["cancels lost"] = int(ending.reached and not ending.canceled)

    def held() -> Counter[str]:
        idle = [env.unwrapped for envs in pool._idle.values() for env in envs]
        slots = pool._slots[1]._value if pool._slots else most
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        found = Counter(
            {
                "places of the pool": most - slots + pool._playing,
                "requests": len(policy.open),
                "tasks": len(tasks),
                "environments": sum(not env.closed for env in Witness.made) - len(idle),
            }
        )
        outside = {
            name: count - there[name] - len(idle) * (name in scene.held_while_idle)
            for name, count in scene.outside().items()
        }
        return found + Counter(outside)

    end = time.monotonic() + patience
    while held() and time.monotonic() < end:
        await asyncio.sleep(0.001)
    left += held()
    try:  # the pool works afterwards
        episodes = await asyncio.wait_for(scene.play(pool, policy), 30)
        left["episodes that failed afterwards"] = sum(bool(episode.error) for episode in episodes)
    except asyncio.TimeoutError:
        left["episodes that failed afterwards"] = 1
    await asyncio.to_thread(pool.close)
    while (more := Counter(scene.outside()) - Counter(there)) and time.monotonic() < end + patience:
        await asyncio.sleep(0.001)
    left += more
    left["closed twice"] = sum(env.closed > 1 for env in Witness.made)
    left["closed beside a call"] = sum(env.beside > 0 for env in Witness.made)
    return ending.reached, +left


def run_scene(scene: Scene, number: int, seed: str, patience: float = 10.0) -> tuple[int, Counter[str]]:
    """Cancel episodes at every moment; return the number of canceled episodes, and what they left behind.

    Args:
        scene: The scene.
        number: Number of random moments.
        seed: Seed of the random moments.
        patience: Seconds in which everything must be given back.
    """
    gc.freeze()  # objects of earlier tests, among which each search for garbage would take a second
    try:
        return _run_scene(scene, number, seed, patience)
    finally:
        gc.unfreeze()


def _run_scene(scene: Scene, number: int, seed: str, patience: float) -> tuple[int, Counter[str]]:
    seconds = asyncio.run(_duration(scene))
    before = census()
    canceled, left = 0, Counter[str]()
    choice = moments(scene, number, seed, seconds)
    moment = next(choice)
    while True:
        reached, found = asyncio.run(trial(scene, moment, patience))
        canceled += reached * scene.together
        left += found
        try:
            moment = choice.send(reached)
        except StopIteration:
            break
    end = time.monotonic() + patience
    while (more := census() - before) and time.monotonic() < end:
        time.sleep(0.01)
    return canceled, left + more


async def _duration(scene: Scene) -> float:
    """Return how long the episodes take, once everything is open that is kept for the process."""
    policy, pool = Speaker(scene.text), EnvPool()
    await scene.play(pool, policy)
    began = time.monotonic()
    await scene.play(pool, policy)
    seconds = time.monotonic() - began
    await asyncio.to_thread(pool.close)
    return seconds


def census() -> Counter[str]:
    """Return the numbers of threads and, by kind, of file descriptors, without idle threads of pools."""
    gc.collect()
    shared = ("gem-env", "gem-tool", "asyncio_")
    busy = [thread for thread in threading.enumerate() if not thread.name.startswith(shared)]
    closing = [thread for thread in threading.enumerate() if thread.name == "gem-env-close"]
    counted = Counter({"threads": len(busy) + len(closing)})
    for descriptor in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            counted[f"descriptors of {os.readlink(descriptor).partition(':[')[0]}"] += 1
    return counted
