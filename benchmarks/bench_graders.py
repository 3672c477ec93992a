"""Grading of mathematical answers against gem-llm's: whole responses in, verdicts out, half of them wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import cycle

import common
from gem.utils.math_grader import boxed_reward_fn

from gem_envs.graders.math import judge
from gem_envs.text import last_boxed

Item = tuple[str, str]
"""A response and the reference answer."""


def numeric(count: int) -> list[Item]:
    """Return integers, decimals, fractions, and thousands; every second answer is off by one."""
    rng = random.Random(0)
    items = []
    for index in range(count):
        value, off = rng.randrange(1000, 99_999), index % 2
        reference, answer = rng.choice(
            [
                (f"{value}", f"{value + off}"),
                (f"{value}", f"{value + off:,}"),
                (f"{value / 100}", f"{(value + off) / 100}0"),
                (f"\\frac{{{value}}}{{7}}", f"{value + off}/7"),
            ]
        )
        items.append((f"So the answer is \\boxed{{{answer}}}.", reference))
    return items


def symbolic(count: int) -> list[Item]:
    """Return roots, polynomials, tuples, sets, intervals, and matrices; every second answer is off by one."""
    rng = random.Random(1)
    items = []
    for index in range(count):
        a, b, c, off = rng.randrange(2, 60), rng.randrange(2, 60), rng.randrange(2, 60), index % 2
        reference, answer = rng.choice(
            [
                (f"{a}\\sqrt{{{b}}}", f"\\sqrt{{{a * a * b + off}}}"),
                (f"(x+{a})(x-{b})", f"x^2+({a - b})x-{a * b + off}"),
                (f"\\frac{{\\pi}}{{{a}}}", f"\\frac{{{b}\\pi}}{{{a * b + off}}}"),
                (f"({a}, {b})", f"\\left({a + off},{b}\\right)"),
                (f"\\{{{a}, {b}, {c}\\}}", f"\\{{{c}, {a + off}, {b}\\}}"),
                (f"[{a}, {a + b})", f"\\left[{a},{a + b + off}\\right)"),
                (f"\\frac{{x+{a}}}{{{b}}}", f"\\frac{{x}}{{{b}}}+\\frac{{{a + off}}}{{{b}}}"),
                (
                    f"\\begin{{pmatrix}}{a}&{b}\\\\{c}&1\\end{{pmatrix}}",
                    f"\\begin{{pmatrix}} {a} & {b} \\\\ {c + off} & 1 \\end{{pmatrix}}",
                ),
            ]
        )
        items.append((f"So the answer is \\boxed{{{answer}}}.", reference))
    return items


def grader(items: list[Item], grade: Callable[[str, str], bool], batch: int) -> Callable[[], int]:
    stream = cycle(items)

    def work() -> int:
        for _ in range(batch):
            grade(*next(stream))
        return batch

    return work


def ours(response: str, reference: str) -> bool:
    answer = last_boxed(response)
    return answer is not None and judge(answer, reference).correct


def peer(response: str, reference: str) -> bool:
    return bool(boxed_reward_fn(response, reference, fast=False, correct_reward=1, incorrect_reward=0)[1])


def line(name: str, items: list[Item], limit: float, quick: bool) -> common.Result:
    wrong = sum(ours(*item) != (index % 2 == 0) for index, item in enumerate(items))
    missed = sum(peer(*item) != (index % 2 == 0) for index, item in enumerate(items[:60]))
    pair = common.compare(
        grader(items, ours, 100), grader(items, peer, 4), seconds=0.2, rounds=3 if quick else 9, clock="wall"
    )
    note = f"peer: gem-llm, no process pool; wall time; wrong: {wrong} of {len(items)}, peer {missed} of 60"
    return common.Result(f"grading: {name}", *pair, "answers/s", at_least=limit, note=note)


def run(quick: bool) -> list[common.Result]:
    return [line("numeric", numeric(2000), 30, quick), line("symbolic", symbolic(2000), 5, quick)]


if __name__ == "__main__":
    common.main(run)
