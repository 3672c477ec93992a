"""Mutants of the small programming tasks; a mutant is wrong if it differs from the reference on an input."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

from tests.mutants.python_source import mutants, output

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def possible_inputs(problem: str, size: int = 300) -> list[str]:
    """Return inputs that a problem allows, drawn around the numbers in its text."""
    random, marks = Random(problem), [int(n) for n in re.findall(r"\d+", problem)] or [1]
    near = sorted(
        {
            0,
            1,
            -1,
            *(
                sign * n * times + d
                for n in marks
                for times in (1, 2)
                for d in (-1, 0, 1)
                for sign in (1, -1)
            ),
        }
    )

    def number() -> int:
        return random.choice(near) if random.random() < 0.7 else random.randint(-99, 120)

    def word() -> str:
        return "".join(
            random.choices(
                _LETTERS, k=random.choice([1, 2, 3, *(max(1, n % 12 + d) for n in marks for d in (-1, 0, 1))])
            )
        )

    if problem.startswith("Read a whole number"):
        return [f"{n}\n" for n in [*near, *range(-60, 121)]]
    if problem.startswith("Read whole numbers"):
        return [" ".join(str(number()) for _ in range(random.randint(1, 5))) + "\n" for _ in range(size)]
    if problem.startswith("Read a line of words"):
        return [" ".join(word() for _ in range(random.randint(1, 14))) + "\n" for _ in range(size)]
    if problem.startswith("Read a line"):
        return ["".join(random.choices(_LETTERS, k=random.randint(1, 35))) + "\n" for _ in range(size)]
    assert problem.startswith("Each line"), problem
    words = [word() for _ in range(3)]
    return [
        "".join(f"{random.choice(words)} {abs(number())}\n" for _ in range(random.randint(1, 4)))
        for _ in range(size)
    ]  # fmt: skip


def judged(row: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the wrong mutants of an item that its tests refuse, and those that they pay."""
    tests = json.loads(row["tests"])
    cases = [(text, output(row["solution"], text)) for text in tests["inputs"]]
    pool = [(text, output(row["solution"], text)) for text in possible_inputs(row["problem"])]
    assert all(result is not None for _, result in [*cases, *pool])
    refused, paid = [], []
    for name, source in mutants(row["solution"]).items():
        if any(output(source, text) != result for text, result in cases):
            refused.append(name)
        elif any(output(source, text) != result for text, result in pool):
            paid.append(f"{name}: {source}")
    return refused, paid
