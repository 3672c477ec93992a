"""The grades of verl's estimators, and of gem-core's in verl, on exact batches."""

from __future__ import annotations

from gem_verl import TRAINER

from gem_lab._conform import grade_estimators
from tests.trainers.conform import recorded

ROWS = {"turn rows", "rewritten", "rewritten, longer turns", "rows in turns", "sub-agent", "compaction"}


def test_the_grades() -> None:
    estimators = TRAINER.load("conform")()
    own = {name for name, estimator in estimators.items() if estimator.ours}  # fail the command if wrong
    assert own == {"gem_dr_grpo in verl", "gem_rloo in verl"}
    grades = grade_estimators(estimators)
    assert grades == recorded("verl")
    wrong = {name: {batch for batch, found in of.items() if found != "right"} for name, of in grades.items()}
    assert wrong["gem_dr_grpo in verl"] == wrong["gem_rloo in verl"] == set()
    # verl gives an episode without comparison its score, and counts masked rows.
    assert wrong["verl grpo, without std"] == {"failed episode", "alone in its group"}
    assert wrong["verl rloo"] >= ROWS
