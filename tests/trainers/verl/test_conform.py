"""The grades of verl's estimators, and of gem-core's in verl, on exact batches."""

from __future__ import annotations

from gem_verl import TRAINER

from tests.trainers.conform import other_than_right

ROWS = {"turn rows", "rewritten", "rewritten, longer turns", "rows in turns", "sub-agent", "compaction"}


def test_the_grades() -> None:
    wrong = {name: {*by_batch} for name, by_batch in other_than_right(TRAINER, "verl", "verl").items()}
    assert wrong["gem-core"] == set()
    # verl gives an episode without comparison its score, and counts masked rows.
    assert wrong["verl grpo, without std"] == {"failed episode", "alone in its group"}
    assert wrong["verl rloo"] >= ROWS
