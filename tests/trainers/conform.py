"""Grades of the estimators of an installed trainer, compared with the recorded ones."""

from __future__ import annotations

import json

from gem_core.trainers import TrainerPlugin
from gem_lab._conform import grade_estimators
from tests.docs.blocks import ROOT

RECORD = ROOT / "docs" / "results" / "conform.json"
ONE_SIZE = dict.fromkeys(("uneven groups", "alone in its group"), "refused")
"""Grades of an estimator that groups samples by position, so its groups have one size."""
ROWS_AS_SAMPLES = {
    **dict.fromkeys(("rewritten", "turn rows", "rows in turns", "compaction", "two compactions"), "wrong"),
    **dict.fromkeys(
        ("rewritten, longer turns", "sub-agent", "sub-agent with rewards", "rejected attempt"), "refused"
    ),
}
"""Grades where each row is a sample, so rows of other episodes are in a group, if the number of rows fits."""


THREADS = ("sub-agent", "sub-agent with rewards", "compaction", "rejected attempt", "two compactions")
"""Batches whose episodes have side threads."""


def other_than_right(plugin: TrainerPlugin, trainer: str, title: str) -> dict[str, dict[str, str]]:
    """Return the grades other than "right", by estimator and batch, once they are the recorded ones.

    The grades of gem-core's estimators, which are equal, are those of "gem-core".

    Args:
        plugin: Plugin of the trainer.
        trainer: Name of the trainer in the record.
        title: Name of the trainer in the names of gem-core's estimators.
    """
    estimators = plugin.load("conform")()
    own = {name for name, estimator in estimators.items() if estimator.ours}  # fail the command if wrong
    assert own == {f"{name} in {title}" for name in ("gem_dr_grpo", "gem_rloo", "rebn with gamma=1/2")}
    grades = grade_estimators(estimators)
    assert grades == json.loads(RECORD.read_text("utf-8"))[trainer]["grades"]
    (ours,) = {tuple(grades.pop(name).items()) for name in own}
    return {
        name: {batch: grade for batch, grade in by_batch.items() if grade != "right"}
        for name, by_batch in [*grades.items(), ("gem-core", dict(ours))]
    }
