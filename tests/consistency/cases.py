"""Level 2 beyond the shared step: each trainer's advantages for the same episodes with other options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gem_lab.consistency import Played, Record
from tests.advantages.oracle import standardized, turn_returns
from tests.consistency.scenario import GAMMA, Scenario


@dataclass(frozen=True)
class Case:
    """Options under which a trainer computes advantages.

    Attributes:
        estimator: "rebn" or "reinforce".
        gamma: Discount per turn.
        ddof: Delta degrees of freedom of ReBN's standard deviation.
        kl_coef: Weight of a penalty in the reward; `penalty` returns its value for each token.
    """

    estimator: str
    gamma: float
    ddof: int = 0
    kl_coef: float = 0.0

    @property
    def name(self) -> str:
        parts = [self.estimator, f"gamma {self.gamma:g}"]
        parts += [f"ddof {self.ddof}"] if self.estimator == "rebn" else []
        return ", ".join([*parts, "KL in the reward"] if self.kl_coef else parts)


CASES = [
    *(Case("rebn", gamma, ddof) for gamma in (1.0, 0.9, 0.0) for ddof in (0, 1)),
    *(Case("reinforce", gamma) for gamma in (1.0, 0.9, 0.0)),
]
WITH_KL = [Case("rebn", 0.9, kl_coef=0.3), Case("reinforce", 1.0, kl_coef=0.3)]


def penalty(played: Played) -> list[float]:
    """Return an artificial KL for each token of the row, equal in all trainers; 0 outside of responses."""
    pairs = enumerate(zip(played.token_ids, played.turn_ids, strict=True))
    return [((7 * token + place) % 13 - 6) / 64 if turn >= 0 else 0.0 for place, (token, turn) in pairs]


def token_rewards(played: Played, case: Case) -> list[float]:
    """Return the reward of each token of the row: a turn's reward on its last token, minus the penalty."""
    found = [-case.kl_coef * value for value in penalty(played)]
    for turn, reward in enumerate(played.rewards or []):
        last = max(place for place, of in enumerate(played.turn_ids) if of == turn)
        found[last] += reward
    return found


def trainable(record: Record) -> list[Played]:
    return [played for played in record.episodes if played.trainable]


def expected(case: Case, episodes: Sequence[Played]) -> list[list[float]]:
    """Return the advantages of the independent oracle, per episode and turn."""
    returns = []
    for played in episodes:
        rewards = [0.0] * (max(played.turn_ids) + 1)
        for turn, reward in zip(played.turn_ids, token_rewards(played, case), strict=True):
            if turn >= 0:
                rewards[turn] += reward
        returns.append(turn_returns(rewards, case.gamma))
    flat = [value for of in returns for value in of]
    if case.estimator == "rebn":
        values = iter(standardized(flat, flat, case.ddof, 1e-8, 1e-6))
    else:
        values = iter(map(float, flat))
    return [[next(values) for _ in of] for of in returns]


def largest_difference(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> float:
    """Return the largest difference, relative to the largest wanted value if that is above 1.

    NaN if one of the values is NaN.
    """
    pairs = [(a, b) for x, y in zip(found, wanted, strict=True) for a, b in zip(x, y, strict=True)]
    return float(np.max([abs(a - b) for a, b in pairs])) / max(1.0, *(abs(b) for _, b in pairs))


def judge_cases(
    made: Scenario,
    trainer: str,
    cases: Sequence[Case],
    advantages: Callable[[Case, list[Played]], Sequence[Sequence[float]]],
) -> dict[str, float]:
    """Run the trainer on each case and store the differences in its record, if there is one.

    Args:
        made: Scenario with the episodes.
        trainer: Name of the record.
        cases: Cases to run.
        advantages: The trainer's own code, from trainable episodes to a value per turn.
    """
    episodes = trainable(made.core())
    found = {
        case.name: largest_difference(advantages(case, episodes), expected(case, episodes)) for case in cases
    }
    _keep(made, trainer, "cases", found)
    return found


def _keep(made: Scenario, trainer: str, field: str, values: dict[str, float]) -> None:
    """Store numbers in the record of a trainer that has taken the step."""
    path = made.records / f"{trainer}.json"
    if path.exists():
        record = Record.read(path)
        getattr(record, field).update(values)
        record.write(path)


def sign_flips(token_values: Sequence[Sequence[float]], episodes: Sequence[Played]) -> float:
    """Return the share of response tokens whose sign differs from ReBN at the gamma of the shared step.

    Args:
        token_values: Per episode, a value for each token of the row; values outside of responses are ignored.
        episodes: The episodes.
    """
    flips = total = 0
    for values, played, wanted in zip(token_values, episodes, expected(REBN, episodes), strict=True):
        for value, turn in zip(values, played.turn_ids, strict=True):
            if turn >= 0 and abs(wanted[turn]) > 1e-6:
                total += 1
                flips += (value > 0) != (wanted[turn] > 0) or value == 0
    return flips / total


REBN = Case("rebn", GAMMA)


def judge_stock(
    made: Scenario,
    trainer: str,
    names: Sequence[str],
    tokens: Callable[[str, list[Played]], Sequence[Sequence[float]]],
) -> dict[str, float]:
    """Store in the trainer's record how often each of its own estimators has the opposite sign of ReBN.

    Args:
        made: Scenario with the episodes.
        trainer: Name of the record.
        names: Names of the estimators.
        tokens: Maps the name of an estimator and the episodes to a value per token of each row.
    """
    episodes = trainable(made.core())
    found = {name: sign_flips(tokens(name, episodes), episodes) for name in names}
    _keep(
        made,
        trainer,
        "notes",
        {f"share of tokens where {name} and ReBN differ in sign": share for name, share in found.items()},
    )
    return found
