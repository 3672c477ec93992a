"""Overhead of an environment: a reset and a step against reasoning-gym's own item and score.

An environment accepts more spellings of an answer, and solves the items of some datasets a second time,
because labels of reasoning-gym are false. The peer does neither.
"""

from __future__ import annotations

import common
import reasoning_gym
from reasoning_gym.utils import extract_answer

import gem_core

LEAST = {"letter_counting": 0.5, "leg_counting": 0.5, "chain_sum": 0.5, "basic_arithmetic": 0.2}
"""Limits of the ratio, by dataset. All but the first have a second solver; the last one's takes longest."""
BATCH = 200


def line(name: str, quick: bool) -> common.Result:
    env = gem_core.make(f"rg:{name}")
    data = reasoning_gym.create_dataset(name, size=500, seed=42)
    env.reset(seed=0)
    place = -1

    def ours() -> int:
        for _ in range(BATCH):
            env.reset()
            env.step(r"I count them one by one. \boxed{17}")
        return BATCH

    def direct() -> int:
        nonlocal place
        for _ in range(BATCH):
            place = (place + 1) % 500
            entry = data[place]
            data.score_answer(extract_answer("I count them one by one. <answer>17</answer>"), entry)
        return BATCH

    pair = common.compare(ours, direct, seconds=0.01 if quick else 0.05, rounds=3 if quick else 15)
    note = "peer: reasoning-gym called directly, without further spellings and second solvers; CPU time"
    return common.Result(f"rg: {name}", *pair, "items/s", at_least=LEAST[name], note=note)


def run(quick: bool) -> list[common.Result]:
    return [line(name, quick) for name in LEAST]


if __name__ == "__main__":
    common.main(run)
