"""Grades of estimators on the batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
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
        scaled: Whether it divides them by their standard deviation over all turns, as ReBN does.
    """

    kind: str
    compute: Callable[[ExactRows], torch.Tensor]
    ours: bool = False
    scaled: bool = False


def grade_estimators(estimators: Mapping[str, GradedEstimator]) -> dict[str, dict[str, ExactGrade]]:
    """Return the grade of each estimator, by name, on each batch, by name."""
    grades: dict[str, dict[str, ExactGrade]] = {}
    for name, estimator in estimators.items():
        grades[name] = {batch["name"]: _grade(batch, estimator) for batch in read_batches()}
    return grades


def _grade(batch: dict[str, Any], estimator: GradedEstimator) -> ExactGrade:
    rows = ExactRows(batch)
    try:
        found = estimator.compute(rows)
    except Exception:  # whatever it raises, it does not train on wrong numbers
        return "refused"
    live = [n for n, episode in enumerate(batch["episodes"]) if not episode["failed"]]
    exact = [[float(Fraction(value)) for value in turns] for turns in batch["advantages"][estimator.kind]]
    scale = float(np.std(np.concatenate(exact))) or 1.0 if estimator.scaled else 1.0
    wanted = torch.zeros(rows.mask.shape, dtype=torch.float64)
    for row, (episode, turns) in enumerate(zip(rows.episodes, rows.turns, strict=True)):
        for in_row, turn in enumerate(turns):
            values = exact[live.index(int(episode.rpartition("_")[2]))]
            wanted[row][rows.turn_ids[row] == in_row] = values[turn] / scale
    return "right" if torch.allclose(found.double() * rows.mask, wanted, rtol=0, atol=1e-4) else "wrong"


def estimators_of_plugin(
    trainer: str, compute: Callable[[str, float, ExactRows], torch.Tensor]
) -> dict[str, GradedEstimator]:
    """Return gem-core's estimators in a trainer: two with an advantage per episode, and one per turn.

    Args:
        trainer: Name of the trainer.
        compute: Returns the advantages of `ExactRows` with an estimator, by its name and its gamma.
    """
    per_turn = partial(compute, "rebn", 0.5)
    return {
        f"gem_dr_grpo in {trainer}": GradedEstimator(
            "group mean", partial(compute, "gem_dr_grpo", 1.0), True
        ),
        f"gem_rloo in {trainer}": GradedEstimator("leave one out", partial(compute, "gem_rloo", 1.0), True),
        f"rebn with gamma=1/2 in {trainer}": GradedEstimator(
            "mean of turns, gamma=1/2", per_turn, True, True
        ),
    }


def own_estimators() -> dict[str, GradedEstimator]:
    """Return estimators of gem-core, of each kind."""
    graded = [
        ("gem-core dr_grpo", "group mean", "dr_grpo", 1.0),
        ("gem-core rloo", "leave one out", "rloo", 1.0),
        ("gem-core rebn", "mean of turns, gamma=1", "rebn", 1.0),
        ("gem-core rebn, gamma=1/2", "mean of turns, gamma=1/2", "rebn", 0.5),
    ]
    return {
        name: GradedEstimator(kind, partial(_compute, own, gamma), True, own == "rebn")
        for name, kind, own, gamma in graded
    }


def _compute(name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    estimator = get_estimator(name)
    groups: dict[str, Any] = {"group_ids": rows.groups} if "group_ids" in estimator.needs else {}
    return by_episode(
        estimator,
        rows.rewards,
        rows.mask,
        episodes=rows.episodes,
        turns=rows.turns,
        turn_ids=rows.turn_ids,
        threads=rows.threads,
        gamma=gamma,
        **groups,
    ).advantages
