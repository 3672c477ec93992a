"""The grades of ROLL's estimators, and of gem-core's in ROLL, on exact batches."""

from __future__ import annotations

from gem_roll import TRAINER

from gem_lab._conform import grade_estimators
from tests.trainers.conform import recorded

THREADS = {"sub-agent", "sub-agent with rewards", "compaction", "rejected attempt", "two compactions"}
SEVERAL_ROWS = THREADS | {
    "turn rows", "turn rows with rewards", "rewritten", "rewritten, longer turns", "rows in turns",
}  # fmt: skip
"""ROLL scores a row by its own rewards, and its returns know no threads."""


def test_the_grades() -> None:
    estimators = TRAINER.load("conform")()
    own = {name for name, estimator in estimators.items() if estimator.ours}  # fail the command if wrong
    assert own == {"gem_dr_grpo in ROLL", "gem_rloo in ROLL"}
    grades = grade_estimators(estimators)
    assert grades == recorded("roll")
    assert {found for of in grades.values() for found in of.values()} == {"right", "wrong"}
    wrong = {name: {batch for batch, found in of.items() if found != "right"} for name, of in grades.items()}
    assert wrong["gem_dr_grpo in ROLL"] == wrong["gem_rloo in ROLL"] == set()
    assert wrong["ROLL grpo, without std"] == {"failed episode", *SEVERAL_ROWS}
    assert wrong["ROLL step_reinforce, without std"] == {"failed episode", "sub-agent"}
    discounted = wrong["ROLL step_reinforce, without std, gamma=1/2"]
    assert discounted == {"failed episode", *THREADS}
