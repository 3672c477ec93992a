"""The grades of RL2's estimator, and of gem-core's in RL2, on exact batches."""

from __future__ import annotations

from gem_rl2 import TRAINER

from tests.trainers.conform import ONE_SIZE, THREADS, other_than_right


def test_the_grades() -> None:
    others = other_than_right(TRAINER, "rl2", "RL2")
    # RL2 itself has no failed trajectories.
    assert others.pop("RL2 reinforce") == ONE_SIZE | {"failed episode": "wrong"}
    # gem-core refuses episodes whose threads RL2's samples cannot hold.
    assert others == {"gem-core": ONE_SIZE | dict.fromkeys(THREADS, "refused")}
