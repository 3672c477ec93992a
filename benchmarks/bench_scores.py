"""Answers scored per second, for the datasets of reasoning-gym whose own scoring would evaluate them.

One third of the answers are right, one third belong to another item, and one third are malformed. Answers
that need math-verify follow, each in a fresh sandbox process.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import common

import gem_core
from gem_envs.graders import _symbolic, math

NAMES = (
    "binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication",
    "puzzle24", "simple_integration", "spiral_matrix", "string_insertion",
)  # fmt: skip
LEAST = 1000.0
"""Minimum number of answers per second and core."""
ITEMS = 50
BATCH = 30


def line(name: str, quick: bool) -> common.Result:
    env: Any = gem_core.make(f"rg:{name}", size=ITEMS)
    items = env.unwrapped.rows
    rows = [items[index] for index in range(ITEMS)]
    pairs = []
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        right = row["answer"]
        # Blanks around a right answer, so that it is parsed and not only compared with the item's answer.
        pairs += [(f" {right} ", row), (other["answer"], row), (f"The answer is ({right}", row)]
    stream = cycle(pairs)

    def work() -> int:
        for _ in range(BATCH):
            items.score(*next(stream))
        return BATCH

    work()
    rounds = 3 if quick else 9
    rate = sorted(common.rate(work, 0.05 if quick else 0.2) for _ in range(rounds))[rounds // 2]
    note = "a third right, a third wrong, a third malformed; CPU time; peer: the limit"
    return common.Result(
        f"scores: rg:{name}", rate, LEAST, rate / LEAST, unit="answers/s", at_least=1.0, note=note
    )


def math_verify(quick: bool) -> common.Result:
    numbers = iter(range(10**9))

    def one(number: int) -> bool:
        upper = number % 9973 + 2
        return math.grade(rf"\int_0^{{{upper}}} 2x\,dx", f"{upper**2 + number % 2}", symbolic=True)

    with ThreadPoolExecutor(4) as pool:

        def work() -> int:
            return len(list(pool.map(one, [next(numbers) for _ in range(8)])))

        work()
        rounds = 1 if quick else 5
        rate = sorted(common.rate(work, 0.5 if quick else 2.0, "wall") for _ in range(rounds))[rounds // 2]
    note = f"integrals, half of them wrong, 4 threads, level {_symbolic.calls.level}; wall time"
    return common.Result("scores: math-verify, a process per answer", rate, unit="answers/s", note=note)


def run(quick: bool) -> list[common.Result]:
    return [*(line(name, quick) for name in NAMES), math_verify(quick)]


if __name__ == "__main__":
    common.main(run)
