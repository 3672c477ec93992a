"""A user's module that registers an estimator, for the option ``modules`` of every trainer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from gem_core.advantages import estimator, returns

NAME = "against_the_best"
MODULE = "tests.trainers.own_estimator"


@estimator()
def against_the_best(
    turn_rewards: Sequence[Sequence[float]],
    *,
    group_ids: Sequence[Hashable],
    gamma: float = 1.0,
    scale: float = 1.0,
) -> list[np.ndarray]:
    """Return the return of each turn minus the best return of an episode in its group."""
    gs = returns(turn_rewards, gamma)
    best = {
        group: max(g[0] for g, of in zip(gs, group_ids, strict=True) if of == group) for group in group_ids
    }
    return [scale * (g - best[group]) for g, group in zip(gs, group_ids, strict=True)]
