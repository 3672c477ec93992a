"""The grades of Oat's estimator, and of gem-core's in Oat, on exact batches."""

from __future__ import annotations

from gem_oat import TRAINER

from tests.trainers.conform import ONE_SIZE, ROWS_AS_SAMPLES, other_than_right


def test_the_grades() -> None:
    others = other_than_right(TRAINER, "oat", "Oat")
    assert others.pop("Oat drgrpo") == ONE_SIZE | ROWS_AS_SAMPLES | {"failed episode": "wrong"}
    # gem-core in Oat groups episodes by their task.
    assert others == {"gem-core": {}}
