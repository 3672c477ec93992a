"""Concurrent episodes of one worker, against the time for which the slowest of them only waits."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import common

from gem_chat import AppendContext
from gem_core import Env, register
from gem_core._util.threads import set_env_threads
from gem_core.rollout import EnvPool, EpisodeLimits, Generation
from gem_core.tasks import TaskRow

STEP, TURNS = 0.1, 5
"""Seconds per step, and turns per episode."""
RESPONSE = 0.5, 1.5
"""Shortest and longest response of the engine, in seconds."""


class Server(Env):
    """An environment whose steps wait, like one behind a server."""

    blocking = True

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.turn = 0
        return "go", {}

    def step(self, action: str) -> Any:
        time.sleep(STEP)
        self.turn += 1
        return "go", 0.0, self.turn == TURNS, False, {}


class AsyncServer(Server):
    """The same with an asynchronous step."""

    async def astep(self, action: str) -> Any:
        await asyncio.sleep(STEP)
        self.turn += 1
        return "go", 0.0, self.turn == TURNS, False, {}


class Engine:
    """A policy whose responses each take a random time."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.waits = [random.uniform(*RESPONSE) for _ in range(TURNS)]
        self.responses = iter(self.waits)

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        await asyncio.sleep(next(self.responses))
        return Generation([1, 2, 3], [-0.5] * 3, "stop")


def seconds_of(name: str, context: AppendContext, episodes: int) -> tuple[float, float]:
    """Return the wall time of concurrent episodes, and the time for which the slowest one waits."""
    pool = EnvPool()
    tasks = [
        TaskRow(env_id=name, env_kwargs={}, seed=seed, index=seed, item=None) for seed in range(episodes)
    ]
    engines = [Engine(task["index"]) for task in tasks]
    limits = EpisodeLimits(max_tokens_per_turn=8)

    async def play() -> float:
        await pool.reserve(tasks)
        start = time.perf_counter()
        played = await asyncio.gather(
            *(pool.play(task, engine, context, limits) for task, engine in zip(tasks, engines, strict=True))
        )
        assert all(episode.terminated for episode in played)
        return time.perf_counter() - start

    return asyncio.run(play()), max(sum(engine.waits) for engine in engines) + STEP * TURNS


def run(quick: bool) -> list[common.Result]:
    if importlib.util.find_spec("transformers") is None:
        raise SystemExit("bench_rollout needs transformers: pip install 'gem-core[train]'")
    from bench_context import make_tokenizer

    register("bench:Server", Server)
    register("bench:AsyncServer", AsyncServer)
    context = AppendContext(make_tokenizer(["go " * 40] * 20))
    episodes = 50 if quick else 1000
    results = []
    for name, threads in (("bench:Server", episodes), ("bench:AsyncServer", 1)):
        set_env_threads(threads)
        seconds, ideal = min(seconds_of(name, context, episodes) for _ in range(1 if quick else 3))
        how = f"{threads} threads" if threads > 1 else "asynchronous steps"
        results.append(
            common.Result(
                f"rollout: {episodes} episodes of {TURNS} steps of {1000 * STEP:.0f} ms, {how}",
                1000 * seconds,
                1000 * ideal,
                seconds / ideal,
                unit="ms",
                at_most=1.3,
                note="peer: the waiting of the slowest episode; responses take 0.5 to 1.5 s; wall time",
            )
        )
    return results


if __name__ == "__main__":
    common.main(run)
