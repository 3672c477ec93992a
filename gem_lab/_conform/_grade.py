"""Grades of estimators on the batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from gem_core.advantages import get_estimator
from gem_core.advantages._rows import by_episode
from gem_lab._conform._rows import ExactRows, read_batches

ExactGrade: TypeAlias = Literal["right", "wrong", "refused"]
"""Whether all advantages are right (to 1e-4), some are not, or the estimator raises an error."""


class GradedEstimator(NamedTuple):
    """An estimator to grade.

    Attributes:
        kind: The entry of "advantages" in a batch with which it is compared.
        compute: Returns the advantages of `ExactRows`, of shape (rows, tokens).
        ours: Whether it is an estimator of gem-core.
    """

    kind: str
    compute: Callable[[ExactRows], torch.Tensor]
    ours: bool = False


def grade_estimators(estimators: Mapping[str, GradedEstimator]) -> dict[str, dict[str, ExactGrade]]:
    """Return the grade of each estimator, by name, on each batch, by name."""
    grades: dict[str, dict[str, ExactGrade]] = {}
    for name, (kind, compute, _) in estimators.items():
        grades[name] = {batch["name"]: _grade(batch, kind, compute) for batch in read_batches()}
    return grades


def _grade(batch: dict[str, Any], kind: str, compute: Callable[[ExactRows], torch.Tensor]) -> ExactGrade:
    rows = ExactRows(batch)
    try:
        found = compute(rows)
    except Exception:  # whatever it raises, it does not train on wrong numbers
        return "refused"
    live = [n for n, episode in enumerate(batch["episodes"]) if not episode["failed"]]
    wanted = torch.zeros(rows.mask.shape, dtype=torch.float64)
    for row, (episode, turns) in enumerate(zip(rows.episodes, rows.turns, strict=True)):
        for in_row, turn in enumerate(turns):
            values = batch["advantages"][kind][live.index(int(episode.rpartition("_")[2]))]
            wanted[row][rows.turn_ids[row] == in_row] = float(Fraction(values[turn]))
    return "right" if torch.allclose(found.double() * rows.mask, wanted, rtol=0, atol=1e-4) else "wrong"


def own_estimators() -> dict[str, GradedEstimator]:
    """Return estimators of gem-core, of each kind."""
    graded = [
        ("gem-core dr_grpo", "group mean", "dr_grpo", 1.0),
        ("gem-core rloo", "leave one out", "rloo", 1.0),
        ("gem-core rebn, before its scale", "mean of turns, gamma=1", "rebn", 1.0),
        ("gem-core rebn, gamma=1/2", "mean of turns, gamma=1/2", "rebn", 0.5),
    ]
    return {
        name: GradedEstimator(kind, partial(_compute, own, gamma), True) for name, kind, own, gamma in graded
    }


def _compute(name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    estimator = get_estimator(name)
    groups: dict[str, Any] = {"group_ids": rows.groups} if "group_ids" in estimator.needs else {}
    result = by_episode(
        estimator,
        rows.rewards,
        rows.mask,
        episodes=rows.episodes,
        turns=rows.turns,
        turn_ids=rows.turn_ids,
        threads=rows.threads,
        gamma=gamma,
        **groups,
    )
    # ReBN divides by a standard deviation, which is no fraction.
    return result.returns - result.stats.mean if name == "rebn" else result.advantages
