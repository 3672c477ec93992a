"""The grades of ROLL's estimators, and of gem-core's in ROLL, on exact batches."""

from __future__ import annotations

from gem_roll import TRAINER

from tests.trainers.conform import THREADS, other_than_right

SEVERAL_ROWS = {
    *THREADS,
    "turn rows", "turn rows with rewards", "rewritten", "rewritten, longer turns", "rows in turns",
}  # fmt: skip
"""ROLL scores a row by its own rewards, and its returns know no threads."""


def test_the_grades() -> None:
    others = other_than_right(TRAINER, "roll", "ROLL")
    assert {grade for by_batch in others.values() for grade in by_batch.values()} == {"wrong"}
    wrong = {name: {*by_batch} for name, by_batch in others.items()}
    assert wrong["gem-core"] == set()
    assert wrong["ROLL grpo, without std"] == {"failed episode", *SEVERAL_ROWS}
    assert wrong["ROLL step_reinforce, without std"] == {"failed episode", "sub-agent"}
    discounted = wrong["ROLL step_reinforce, without std, gamma=1/2"]
    assert discounted == {"failed episode", *THREADS}
