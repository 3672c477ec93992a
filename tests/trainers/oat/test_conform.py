"""The grades of Oat's estimator, and of gem-core's in Oat, on exact batches."""

from __future__ import annotations

from gem_oat import TRAINER

from gem_lab._conform import grade_estimators
from tests.trainers.conform import recorded

BY_POSITION = {
    **dict.fromkeys(("uneven groups", "alone in its group"), "refused"),
    **dict.fromkeys(("rewritten", "turn rows", "rows in turns", "compaction", "two compactions"), "wrong"),
    **dict.fromkeys(
        ("rewritten, longer turns", "sub-agent", "sub-agent with rewards", "rejected attempt"), "refused"
    ),
    "failed episode": "wrong",
}
"""Oat groups rows by position, so rows of other episodes are in a group, if the number of rows fits."""


def test_the_grades() -> None:
    estimators = TRAINER.load("conform")()
    own = {name for name, estimator in estimators.items() if estimator.ours}  # fail the command if wrong
    assert own == {"gem_dr_grpo in Oat", "gem_rloo in Oat"}
    grades = grade_estimators(estimators)
    assert grades == recorded("oat")
    others = {
        name: {batch: found for batch, found in of.items() if found != "right"} for name, of in grades.items()
    }
    # gem-core in Oat groups episodes by their task.
    assert others == {"Oat drgrpo": BY_POSITION} | {name: {} for name in own}
