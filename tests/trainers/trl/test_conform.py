"""The grades of TRL's estimators, and of gem-core's in TRL, on exact batches."""

from __future__ import annotations

from gem_trl import TRAINER

from tests.trainers.conform import ONE_SIZE, ROWS_AS_SAMPLES, other_than_right


def test_the_grades() -> None:
    others = other_than_right(TRAINER, "trl", "TRL")
    for name in ("TRL grpo, without std", "TRL rloo"):
        assert others.pop(name) == ONE_SIZE | ROWS_AS_SAMPLES
    assert others == {"gem-core": ONE_SIZE}
