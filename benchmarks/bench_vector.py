"""Steps per second of vector envs: against one env in a loop, and against gem-llm's vector envs."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import common

from gem_core import Env, EnvSpec, make, make_vec
from gem_core.vector import VectorEnv

NUM_ENVS = 64
GAME = "game:GuessTheNumber-v0"
GAME_ARGS: dict[str, Any] = {"min_number": 1, "max_number": 20, "max_turns": 10}
ACTIONS = [rf"I try \boxed{{{i % 20 + 1}}}." for i in range(NUM_ENVS)]
DELAYS = [0.1] + [0.002] * 15
"""Seconds per step of each of the 16 waiting environments."""
AGAINST_LOOP, AGAINST_BARE = 1.6, 0.9
"""Limits for environments that compute. The first applies only if bare processes reach
`AGAINST_LOOP` / `AGAINST_BARE`, that is, if both cores are free."""


class Busy(Env):
    """An environment whose step runs a loop of `work` iterations."""

    blocking = "cpu"

    def __init__(self, work: int) -> None:
        self.work = work

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        return "go", {}

    def step(self, action: str) -> Any:
        total = 0
        for i in range(self.work):
            total += i
        return str(total), 0.0, False, False, {}


class Waiting(Env):
    """An environment whose step sleeps, like one that queries a server."""

    blocking = True

    def __init__(self, delay: float) -> None:
        self.delay = delay

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        return "go", {}

    def step(self, action: str) -> Any:
        time.sleep(self.delay)
        return "go", 0.0, False, False, {}


def loop(env: Env, actions: Sequence[str]) -> Callable[[], int]:
    """Return work that steps one environment once per action."""
    env.reset(seed=0)

    def work() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return work


def lockstep(envs: Any, actions: Sequence[str]) -> Callable[[], int]:
    """Return work that steps a vector environment, ours or the peer's, once."""
    envs.reset(seed=0)

    def work() -> int:
        envs.step(actions)
        return len(actions)

    return work


def at_own_pace(envs: VectorEnv) -> Callable[[], int]:
    """Return work in which each environment gets its next action as soon as its last step is done."""
    envs.reset(seed=0)
    envs.send(dict.fromkeys(range(envs.num_envs), "go"))

    def work() -> int:
        ready = envs.recv()
        envs.send(dict.fromkeys(ready, "go"))
        return len(ready)

    return work


@contextlib.contextmanager
def peer_vec(entry_point: Any, vec_kwargs: list[dict[str, Any]], async_mode: bool) -> Iterator[Any]:
    """Yield gem-llm's vector environment for an environment that is registered here."""
    import gem

    gem.register("bench:Peer-v0", entry_point)
    with contextlib.redirect_stdout(io.StringIO()):  # gem-llm prints what it creates
        envs = gem.make_vec(["bench:Peer-v0"] * len(vec_kwargs), vec_kwargs=vec_kwargs, async_mode=async_mode)
    try:
        yield envs
    finally:
        if async_mode:
            envs.thread_pool_executer.shutdown()
        del gem.envs.registration.ENV_REGISTRY["bench:Peer-v0"]


def cheap_lines(seconds: float, rounds: int) -> list[common.Result]:
    from gem.envs.game_env.guess_the_number import GuessTheNumberEnv

    name = f"vector: {NUM_ENVS} GuessTheNumber, auto"
    with make_vec(GAME, NUM_ENVS, **GAME_ARGS) as envs:
        ours = lockstep(envs, ACTIONS)
        pair = common.compare(ours, loop(make(GAME, **GAME_ARGS), ACTIONS), seconds=seconds, rounds=rounds)
        against_loop = common.Result(name, *pair, at_least=0.7, note="peer: one env in a loop; CPU time")
        with peer_vec(GuessTheNumberEnv, [dict(GAME_ARGS) for _ in ACTIONS], False) as peer:
            pair = common.compare(ours, lockstep(peer, ACTIONS), seconds=seconds, rounds=rounds)
        against_peer = common.Result(name, *pair, at_least=1.5, note="peer: gem-llm, sync; CPU time")
    return [against_loop, against_peer]


def work_of_a_millisecond() -> int:
    """Return the number of iterations of `Busy`'s loop that take a millisecond of CPU time here."""
    env = Busy(20_000)
    env.reset()
    best = min(common.rate(lambda: len(env.step("go")[0]) > 0, 0.05) for _ in range(3))
    return round(20_000 * best / 1000)


def bare_steps(work: int, steps: int) -> int:
    """Run steps of one `Busy` environment, in a separate process."""
    env = Busy(work)
    env.reset(seed=0)
    for _ in range(steps):
        env.step("go")
    return steps


def computing_lines(seconds: float, rounds: int) -> list[common.Result]:
    """Compare with a loop, and with the same number of bare processes, which show the machine's limit."""
    name = f"vector: {NUM_ENVS} envs of 1 ms CPU work, auto"
    work = work_of_a_millisecond()
    spec = EnvSpec("bench:Busy-v0", "bench_vector:Busy", {"work": work})
    cores = os.cpu_count() or 1
    with make_vec(spec, NUM_ENVS) as envs, ProcessPoolExecutor(cores, get_context("spawn")) as pool:
        ours = lockstep(envs, ["go"] * NUM_ENVS)
        alone = loop(make(spec), ["go"] * NUM_ENVS)
        share = [NUM_ENVS // cores] * cores

        def bare() -> int:
            return sum(pool.map(bare_steps, [work] * cores, share))

        options: Any = {"seconds": seconds, "rounds": rounds, "clock": "wall"}
        against_bare = common.compare(ours, bare, **options)
        against_loop = common.compare(ours, alone, **options)
        machine = common.compare(bare, alone, **options).ratio
    note = f"{envs.backend} backend; wall time"
    both_free = machine >= AGAINST_LOOP / AGAINST_BARE
    return [
        common.Result(
            name,
            *against_loop,
            at_least=AGAINST_LOOP if both_free else None,
            note=f"peer: one env in a loop; {note}; {cores} bare processes reach {machine:.2f}"
            + ("" if both_free else ", too little for a limit"),
        ),
        common.Result(
            name, *against_bare, at_least=AGAINST_BARE, note=f"peer: {cores} bare processes; {note}"
        ),
    ]


def straggler_line(seconds: float, rounds: int) -> common.Result:
    import gem

    class PeerWaiting(gem.Env):
        def __init__(self, delay: float, seed: int) -> None:
            self.delay = delay

        def reset(self, seed: int | None = None) -> Any:
            return "go", {}

        def step(self, action: str) -> Any:
            time.sleep(self.delay)
            return "go", 0.0, False, False, {}

    kwargs = [{"delay": delay} for delay in DELAYS]
    spec = EnvSpec("bench:Waiting-v0", "bench_vector:Waiting")
    with make_vec(spec, vec_kwargs=kwargs) as envs, peer_vec(PeerWaiting, kwargs, True) as peer:
        pair = common.compare(
            at_own_pace(envs),
            lockstep(peer, ["go"] * len(DELAYS)),
            seconds=seconds,
            rounds=rounds,
            clock="wall",
        )
        note = f"peer: gem-llm, async; {envs.backend} backend; wall time"
    return common.Result("vector: 15 envs of 2 ms and one of 100 ms, recv", *pair, at_least=5, note=note)


def run(quick: bool) -> list[common.Result]:
    seconds, rounds = (0.02, 3) if quick else (0.3, 7)
    return [
        *cheap_lines(seconds, rounds),
        *computing_lines(seconds, rounds if quick else 2 * rounds),
        straggler_line(seconds, rounds),
    ]


if __name__ == "__main__":
    common.main(run)
