"""A slow, exact, and independent oracle with rational numbers and nested loops, and nothing from gem_core.

It writes the golden vectors:

    python -m tests.advantages.oracle
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "advantages.json"
EXACT = Context(prec=120, Emax=10**6, Emin=-(10**6))


def turn_returns(rewards: list[float], gamma: float) -> list[Fraction]:
    """Return G_t, the sum of gamma^(k - t) * r_k over k >= t."""
    result = []
    for t in range(len(rewards)):
        total = Fraction(0)
        for k in range(t, len(rewards)):
            total += Fraction(gamma) ** (k - t) * Fraction(rewards[k])
        result.append(total)
    return result


def moments(values: list[Fraction]) -> tuple[Fraction, Fraction]:
    """Return the mean and the sum of squared deviations."""
    if not values:
        return Fraction(0), Fraction(0)
    mean = sum(values, Fraction(0)) / len(values)
    return mean, sum(((value - mean) ** 2 for value in values), Fraction(0))


def standardized(
    values: Sequence[Fraction | float],
    population: Sequence[Fraction | float],
    ddof: int,
    eps: float,
    min_std: float,
) -> list[float]:
    """Return (value - mean) / (std + eps) with the population's moments and the min_std rule."""
    values, population = [*map(Fraction, values)], [*map(Fraction, population)]
    mean, squares = moments(population)
    if len(population) <= max(1, ddof):
        return [0.0 for _ in values]
    with localcontext(EXACT):
        variance = squares / (len(population) - ddof)
        std = (Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt()
        threshold = Fraction(min_std) * max(Fraction(1), abs(mean))
        if std <= Decimal(threshold.numerator) / Decimal(threshold.denominator):
            return [0.0 for _ in values]
        result = []
        for value in values:
            gap = value - mean
            quotient = Decimal(gap.numerator) / Decimal(gap.denominator) / (std + Decimal(eps))
            result.append(float(quotient))
        return result


def turns_of_row(mask: list[int], rewards: list[float]) -> list[tuple[list[int], Fraction]]:
    """Return the response positions and exact reward of each turn of one row, by scanning its tokens."""
    turns: list[tuple[list[int], Fraction]] = []
    for position, (bit, reward) in enumerate(zip(mask, rewards, strict=True)):
        if bit and (position == 0 or not mask[position - 1]):
            turns.append(([], Fraction(0)))
        if turns:
            positions, total = turns[-1]
            if bit:
                positions.append(position)
            turns[-1] = (positions, total + Fraction(reward))
    return turns


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """Return the expected results of every estimator per episode and turn; None for untrainable episodes."""
    gamma, ddof, eps, min_std = case["gamma"], case["ddof"], case["eps"], case["min_std"]
    episodes = case["episodes"]
    gs = [turn_returns(e["rewards"], gamma) if e["trainable"] else None for e in episodes]

    everything = []
    for g in gs:
        everything += g or []
    rebn = [None if g is None else standardized(g, everything, ddof, eps, min_std) for g in gs]

    grpo: list[list[float] | None] = []
    rloo: list[list[float] | None] = []
    for episode, g in zip(episodes, gs, strict=True):
        if g is None:
            grpo.append(None)
            rloo.append(None)
            continue
        group, others = [], []
        for other, other_g in zip(episodes, gs, strict=True):
            if other_g is not None and other["group"] == episode["group"]:
                group.append(other_g[0])
                if other is not episode:
                    others.append(other_g[0])
        grpo.append(standardized(g[:1], group, ddof, eps, min_std) * len(g))
        rloo.append([float(g[0] - moments(others)[0]) if others else 0.0] * len(g))

    gae: list[list[float] | None] = []
    for episode in episodes:
        if not episode["trainable"]:
            gae.append(None)
            continue
        rewards = [Fraction(r) for r in episode["rewards"]]
        values = [Fraction(v) for v in episode["values"]] + [Fraction(episode["bootstrap"])]
        advantages = []
        for t in range(len(rewards)):
            total = Fraction(0)
            for k in range(t, len(rewards)):
                delta = rewards[k] + Fraction(gamma) * values[k + 1] - values[k]
                total += (Fraction(gamma) * Fraction(case["lam"])) ** (k - t) * delta
            advantages.append(float(total))
        gae.append(advantages)

    mean, m2 = moments(everything)
    return {
        "stats": [len(everything), float(mean), float(m2)],
        "returns": [None if g is None else [float(value) for value in g] for g in gs],
        "rebn": rebn,
        "grpo": grpo,
        "rloo": rloo,
        "gae": gae,
    }


def episode(
    rewards: list[float], group: str = "a", *, trainable: bool = True, **extra: Any
) -> dict[str, Any]:
    """Return one episode; the lengths of contexts and responses vary with the turn."""
    turns = len(rewards)
    return {
        "rewards": rewards,
        "trainable": trainable,
        "group": group,
        "context_lengths": [1 + (3 * t + turns) % 4 for t in range(turns)],
        "response_lengths": [1 + (2 * t + turns) % 5 for t in range(turns)],
        "values": [0.25 * t - 0.5 for t in range(turns)],
        "bootstrap": 0.0,
        **extra,
    }


def random_episodes(seed: int, count: int, max_turns: int) -> list[dict[str, Any]]:
    random = Random(seed)
    episodes = []
    for number in range(count):
        turns = 1 + int(random.random() * max_turns)
        rewards = [round(2 * random.random() - 1, 3) for _ in range(turns)]
        values = [round(random.random(), 3) for _ in range(turns)]
        truncated = random.random() < 0.3
        episodes.append(
            episode(
                rewards,
                f"group {number // 4}",
                trainable=random.random() < 0.9,
                values=values,
                bootstrap=round(random.random(), 3) if truncated else 0.0,
            )
        )
    return episodes


def case(name: str, episodes: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Return one golden case; `float32` is whether its rewards are precise enough in float32."""
    given = {
        "name": name,
        "gamma": 1.0,
        "lam": 0.95,
        "ddof": 0,
        "eps": 1e-8,
        "min_std": 1e-6,
        "float32": True,
        **options,
        "episodes": episodes,
    }
    return {**given, "expected": expected(given)}


def golden_cases() -> list[dict[str, Any]]:
    ragged = [
        episode([0.0, 0.0, 1.0]),
        episode([-0.1]),
        episode([0.5, -0.25, 0.0, 0.75, 1.0], "b", bootstrap=0.5),
        episode([0.0, 0.0], "b"),
    ]
    return [
        case("ragged, gamma 1", ragged),
        case("ragged, gamma 0.9", ragged, gamma=0.9),
        case("ragged, gamma 0", ragged, gamma=0.0),
        case("ragged, sample standard deviation", ragged, gamma=0.9, ddof=1),
        case("ragged, eps of the paper", ragged, gamma=0.9, eps=1e-9),
        case("ragged, lambda 0", ragged, gamma=0.9, lam=0.0),
        case("ragged, lambda 1", ragged, gamma=0.9, lam=1.0),
        case("one turn", [episode([0.7])]),
        case("one turn, sample standard deviation", [episode([0.7])], ddof=1),
        case(
            "one turn beside an untrainable episode", [episode([0.7]), episode([5.0, 1.0], trainable=False)]
        ),
        case("all equal", [episode([-0.1]) for _ in range(4)], gamma=0.9),
        case("equal up to rounding noise", [episode([1e6 + 0.25 * k]) for k in range(4)]),
        case("huge rewards", [episode([1e30, -2e30]), episode([0.5e30]), episode([1e29] * 3)], gamma=0.9),
        case(
            "tiny rewards that differ", [episode([1e-4, 3e-4]), episode([-2e-4]), episode([0.0])], gamma=0.5
        ),
        case("tiny rewards that count as equal", [episode([1e-9, 2e-9]), episode([3e-9])]),
        case(
            "small differences on a large offset",
            [episode([1e8 + 500.0]), episode([1e8 - 500.0]), episode([1e8 + 1000.0])],
            float32=False,
        ),
        case(
            "untrainable episodes",
            [
                episode([1.0, 0.0]),
                episode([100.0, -7.0, 3.0], trainable=False),
                episode([0.0, 1.0, 0.5], "b"),
                episode([], trainable=False),
                episode([0.25], "b"),
            ],
            gamma=0.9,
        ),
        case("nothing trainable", [episode([1.0, 2.0], trainable=False)]),
        case(
            "groups of one, of equal scores and of three",
            [
                episode([1.0], "alone"),
                episode([0.5, 0.5], "equal"),
                episode([1.0], "equal"),
                episode([0.0, 0.0, 1.0], "three"),
                episode([0.0], "three"),
                episode([0.25, 0.5], "three"),
            ],
            ddof=1,
        ),
        case("random, gamma 0.95", random_episodes(0, 24, 12), gamma=0.95, lam=0.9),
        case("random, gamma 1, sample standard deviation", random_episodes(1, 12, 6), ddof=1),
    ]


def to_json(cases: list[dict[str, Any]]) -> str:
    """Return the cases as JSON, one line per case."""
    lines = ",\n".join(json.dumps(case) for case in cases)
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    GOLDEN.write_text(to_json(golden_cases()))
