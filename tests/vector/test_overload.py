"""The thread backend: steps that wait for a place are not overdue, and abandoned ones leave the queue."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gem_core import Env, make_vec, register
from gem_core._core import ResetResult, StepResult
from gem_core._util.places import Places

PLACES = Places(1)
RAN: list[str] = []
LIMIT = 0.5


class Working(Env):
    blocking = True

    def reset(self, seed: int | None = None, *, options: Any = None) -> ResetResult:
        self.begin_episode(seed)
        return "begin", {}

    def step(self, action: str) -> StepResult:
        if action == "hang":
            time.sleep(2 * LIMIT)
        with PLACES.held():
            RAN.append(action)
        return "next", 1.0, False, False, {}


register("overload:Vector-v0", Working)


def test_steps_that_wait_are_not_overdue() -> None:
    envs = make_vec("overload:Vector-v0", num_envs=10, backend="thread", max_workers=10, timeout=LIMIT)
    envs.reset(seed=0)
    RAN.clear()
    with ThreadPoolExecutor(1) as thread:
        with PLACES.held():
            step = thread.submit(envs.step, ["work"] * 10)
            while PLACES.waiting < 10:
                time.sleep(0.01)
            time.sleep(1.6 * LIMIT)
            assert PLACES.waiting == 10
        _, rewards, _, truncated, _ = step.result(30)
    assert list(rewards) == [1.0] * 10
    assert not any(truncated)
    assert RAN == ["work"] * 10
    envs.close()


def test_a_step_that_was_overdue_does_nothing_later() -> None:
    envs = make_vec("overload:Vector-v0", num_envs=2, backend="thread", max_workers=2, timeout=LIMIT)
    envs.reset(seed=0)
    RAN.clear()
    _, rewards, _, truncated, _ = envs.step(["hang", "work"])
    assert list(truncated) == [True, False]
    assert list(rewards) == [0.0, 1.0]
    time.sleep(2 * LIMIT)
    assert RAN == ["work"]
    envs.close()
