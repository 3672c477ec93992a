"""The grades of TRL's estimators, and of gem-core's in TRL, on exact batches."""

from __future__ import annotations

from gem_trl import TRAINER

from gem_lab._conform import grade_estimators
from tests.trainers.conform import recorded

ONE_SIZE = dict.fromkeys(("uneven groups", "alone in its group"), "refused")
"""TRL groups samples by position, so its groups have one size."""
BY_POSITION = {
    **dict.fromkeys(("rewritten", "turn rows", "rows in turns", "compaction", "two compactions"), "wrong"),
    **dict.fromkeys(
        ("rewritten, longer turns", "sub-agent", "sub-agent with rewards", "rejected attempt"), "refused"
    ),
}
"""A row is a sample for TRL, so rows of other episodes are in its groups, if the number of rows fits."""


def test_the_grades() -> None:
    estimators = TRAINER.load("conform")()
    own = {name for name, estimator in estimators.items() if estimator.ours}  # fail the command if wrong
    assert own == {"gem_dr_grpo in TRL", "gem_rloo in TRL"}
    grades = grade_estimators(estimators)
    assert grades == recorded("trl")
    others = {
        name: {batch: found for batch, found in of.items() if found != "right"} for name, of in grades.items()
    }
    for name in ("TRL grpo, without std", "TRL rloo"):
        assert others.pop(name) == ONE_SIZE | BY_POSITION
    assert others == dict.fromkeys(own, ONE_SIZE)
