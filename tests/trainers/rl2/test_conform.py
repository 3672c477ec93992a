"""The grades of RL2's estimator, and of gem-core's in RL2, on exact batches."""

from __future__ import annotations

from gem_rl2 import TRAINER

from gem_lab._conform import grade_estimators
from tests.trainers.conform import recorded

ONE_SIZE = dict.fromkeys(("uneven groups", "alone in its group"), "refused")
"""RL2 groups trajectories by position, so its groups have one size."""


def test_the_grades() -> None:
    estimators = TRAINER.load("conform")()
    own = {name for name, estimator in estimators.items() if estimator.ours}  # fail the command if wrong
    assert own == {"gem_dr_grpo in RL2", "gem_rloo in RL2"}
    grades = grade_estimators(estimators)
    assert grades == recorded("rl2")
    others = {
        name: {batch: found for batch, found in of.items() if found != "right"} for name, of in grades.items()
    }
    # RL2 itself has no failed trajectories.
    assert others.pop("RL2 reinforce") == ONE_SIZE | {"failed episode": "wrong"}
    assert others == dict.fromkeys(("gem_dr_grpo in RL2", "gem_rloo in RL2"), ONE_SIZE)
