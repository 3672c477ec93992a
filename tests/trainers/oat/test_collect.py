"""An actor collects many episodes concurrently, starts new ones as others end, and plays each to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from gem_oat._collect import collect
from gem_oat._policy import BatchedPolicy

from gem_core.errors import EnvError
from gem_core.rollout import Episode, Generation, Turn
from gem_core.tasks import TaskRow


def tasks(number: int) -> list[TaskRow]:
    return [TaskRow(env_id="test", env_kwargs={}, seed=seed, index=seed) for seed in range(number)]


def episode(seed: int, turns: int, error: str | None = None) -> Episode:
    made = [Turn([1], [2], [0.0], 1.0, "", "", "stop") for _ in range(turns)]
    reason = "env_error" if error else "terminated"
    return Episode("test", seed, made, not error, bool(error), reason, error, trainable=error is None)


class Player:
    """Plays tasks with a given number of turns; a turn is one iteration of the event loop."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths
        self.running: set[tuple[int, int]] = set()
        self.most = 0
        self.begun: list[tuple[int, int]] = []

    async def __call__(self, task: TaskRow, sample: int) -> Episode:
        name = (task["seed"], sample)
        self.begun.append(name)
        self.running.add(name)
        self.most = max(self.most, len(self.running))
        for _ in range(self.lengths[task["seed"]]):
            await asyncio.sleep(0)
        self.running.discard(name)
        return episode(task["seed"], self.lengths[task["seed"]])


def run(play: Any, number: int, **options: Any) -> list[Episode]:
    return asyncio.run(collect(tasks(number), play, **options))


def test_long_episodes_that_had_started_are_in_the_result() -> None:
    play = Player([9, 1, 1, 1, 1, 1, 1, 1])
    found = run(play, 8, turns=4, at_once=2)
    assert [e.seed for e in found] == [0, 1, 2, 3]
    assert len(found[0].turns) == 9
    assert play.most == 2
    assert not play.running


def test_an_episode_that_ends_makes_room() -> None:
    play = Player([20, *[1] * 30])
    found = run(play, 31, turns=30, at_once=2)
    assert len(found) >= 11  # short episodes did not wait for the long one
    assert play.most == 2


def test_a_group_starts_as_a_whole() -> None:
    play = Player([2] * 8)
    found = run(play, 8, turns=5, at_once=3, group_size=4)
    assert play.begun == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert [e.seed for e in found] == [0] * 4
    play = Player([1] * 8)
    run(play, 8, turns=5, at_once=3, group_size=4)
    assert len(play.begun) == 8


def test_failures_are_replaced_and_kept_for_the_error_rate() -> None:
    async def play(task: TaskRow, sample: int) -> Episode:
        return episode(task["seed"], 1, "lost its board" if task["seed"] == 1 else None)

    found = run(play, 4, turns=4, at_once=1)
    assert [e.trainable for e in found] == [True, False, True, True, True]
    assert found[-1].seed == 0  # tasks start over


def test_failures_end_nothing_while_other_episodes_succeed() -> None:
    async def play(task: TaskRow, sample: int) -> Episode:
        return episode(task["seed"], 1, None if task["seed"] % 4 == 3 else "lost its board")

    found = run(play, 16, turns=4, at_once=2)
    assert sum(not e.trainable for e in found) == 12  # three times the requested number of turns
    assert sum(e.trainable for e in found) == 4


def test_nothing_but_failures_is_reported_in_one_line() -> None:
    async def play(task: TaskRow, sample: int) -> Episode:
        error = None if task["seed"] == 0 else "step() failed: ValueError: the board fell off"
        return episode(task["seed"], 1, error)

    with pytest.raises(
        EnvError,
        match=r"no episode is trainable: 4 of 4 episodes .* test with seed 1: .*the board fell off",
    ) as caught:
        run(play, 9, turns=4, at_once=1)
    assert "\n" not in str(caught.value)


def test_an_error_of_the_engine_ends_all_episodes() -> None:
    ended = []

    async def play(task: TaskRow, sample: int) -> Episode:
        if task["seed"] == 2:
            raise RuntimeError("out of memory")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(task["seed"])
        raise AssertionError

    with pytest.raises(RuntimeError, match="out of memory"):
        run(play, 4, turns=8, at_once=3)
    assert sorted(ended) == [0, 1]


def test_requests_of_one_moment_are_one_batch() -> None:
    batches: list[list[list[int]]] = []

    def sample(prompts: list[list[int]], most: list[int]) -> list[Generation]:
        batches.append(prompts)
        assert most == [len(prompt) + 3 for prompt in prompts]
        return [Generation([prompt[0] + 1], [0.0], "stop") for prompt in prompts]

    async def several() -> list[Generation]:
        with ThreadPoolExecutor(1) as thread:
            policy = BatchedPolicy(sample, thread)
            ask = [policy.generate([n] * (n + 1), max_tokens=n + 4, request_id="") for n in range(5)]
            return await asyncio.gather(*ask)

    assert [made.token_ids for made in asyncio.run(several())] == [[1], [2], [3], [4], [5]]
    assert [len(batch) for batch in batches] == [5]


def test_requests_during_a_run_of_the_engine_form_the_next_batch() -> None:
    sizes, go_on = [], Event()

    def sample(prompts: list[list[int]], most: list[int]) -> list[Generation]:
        sizes.append(len(prompts))
        assert go_on.wait(60)
        return [Generation([1], [0.0], "stop")] * len(prompts)

    async def late(policy: BatchedPolicy) -> None:
        while not sizes:
            await asyncio.sleep(0.001)
        ask = [asyncio.ensure_future(policy.generate([1], max_tokens=1, request_id="")) for _ in range(3)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*ask)

    async def several() -> None:
        with ThreadPoolExecutor(1) as thread:
            policy = BatchedPolicy(sample, thread)
            await asyncio.gather(policy.generate([1], max_tokens=1, request_id=""), late(policy))

    asyncio.run(several())
    assert sizes == [1, 3]


def test_an_error_of_the_engine_reaches_every_episode_of_its_batch() -> None:
    def sample(prompts: list[list[int]], most: list[int]) -> list[Generation]:
        raise RuntimeError("out of memory")

    async def several() -> list[Any]:
        with ThreadPoolExecutor(1) as thread:
            policy = BatchedPolicy(sample, thread)
            ask = [policy.generate([1], max_tokens=1, request_id="") for _ in range(3)]
            return await asyncio.gather(*ask, return_exceptions=True)

    assert [str(error) for error in asyncio.run(several())] == ["out of memory"] * 3
