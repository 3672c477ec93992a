"""The sweeps of the page: over discounts, sizes of groups, and numbers of turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_lab.exam._run import Chosen, Exam, run
from gem_lab.exam._tasks import chain

GAMMAS = (1.0, 0.99, 0.95, 0.9, 0.8, 0.7)
GROUPS = (2, 4, 8, 16)
TURNS = (8, 32, 128, 512)


def sweep_gamma(estimators: Sequence[Chosen] | None = None, **settings: Any) -> Exam:
    """Run the exam on "slippery" and "stop" with several discounts, for batches of 64 episodes.

    Args:
        estimators: As in `run`.
        **settings: Further arguments of `run`.
    """
    return run(
        estimators, tasks=("stop", "slippery"), stages=("halfway",), batch_sizes=(64,), gamma=GAMMAS,
        aggregations=("token-sum",), **settings,
    )  # fmt: skip


def sweep_groups(estimators: Sequence[Chosen] | None = None, **settings: Any) -> Exam:
    """Run the exam on "stop", "guess", "tool", and "mixture" with several sizes of groups, in batches of 64.

    Args:
        estimators: As in `run`.
        **settings: Further arguments of `run`.
    """
    return run(
        estimators, tasks=("stop", "guess", "tool", "mixture"), stages=("initial",), batch_sizes=(64,),
        group_size=GROUPS, aggregations=("token-sum",), **settings,
    )  # fmt: skip


def sweep_turns(estimators: Sequence[Chosen] | None = None, **settings: Any) -> Exam:
    """Run the exam on sparse chains of 8 to 512 turns, for batches of 128 episodes.

    Args:
        estimators: As in `run`.
        **settings: Further arguments of `run`.
    """
    return run(
        estimators, tasks=[chain(turns, dense=False) for turns in TURNS], stages=("initial",),
        batch_sizes=(128,), aggregations=("token-sum",), **settings,
    )  # fmt: skip
