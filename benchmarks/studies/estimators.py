"""Estimators of the studies: centered or scaled returns, shuffled ReBN, and normalized GAE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from gem_core.advantages import ReturnStats, estimator, gae, returns
from gem_core.advantages._batch import TurnRewards
from gem_core.advantages._stats import FloatArray
from gem_core.errors import ConfigError


def centered(
    turn_rewards: TurnRewards, *, gamma: float = 1.0, truncated: Sequence[bool] | None = None
) -> list[FloatArray]:
    """Return ``G - mean(G)``, with the mean over all turns of the batch."""
    turn_returns = _returns(turn_rewards, gamma, truncated)
    mean = ReturnStats.from_returns(turn_returns).mean
    return [values - mean for values in turn_returns]


def scaled(
    turn_rewards: TurnRewards, *, gamma: float = 1.0, truncated: Sequence[bool] | None = None
) -> list[FloatArray]:
    """Return ``G / std(G)``, with the standard deviation over all turns of the batch."""
    turn_returns = _returns(turn_rewards, gamma, truncated)
    scale = ReturnStats.from_returns(turn_returns).scale()
    return [values * scale for values in turn_returns]


def normalized_gae(
    turn_rewards: TurnRewards,
    *,
    values: Sequence[ArrayLike],
    gamma: float = 1.0,
    lam: float = 0.95,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Return the advantages of `gae`, normalized over all turns of the batch."""
    advantages = gae(turn_rewards, values=values, gamma=gamma, lam=lam, truncated=truncated)
    stats = ReturnStats.from_returns(advantages)
    return [(turn_advantages - stats.mean) * stats.scale() for turn_advantages in advantages]


def shuffled_rebn(
    turn_rewards: TurnRewards, *, gamma: float = 1.0, truncated: Sequence[bool] | None = None
) -> list[FloatArray]:
    """Return the advantages of ReBN in a random order, which depends on their values only."""
    stats = ReturnStats.from_returns(turn_returns := _returns(turn_rewards, gamma, truncated))
    flat = np.concatenate([(values - stats.mean) * stats.scale() for values in turn_returns])
    order = np.random.default_rng(list(flat.tobytes()))
    shuffled = order.permutation(flat)
    return np.split(shuffled, np.cumsum([len(values) for values in turn_returns])[:-1])


def register() -> None:
    """Make the estimators available to `gem_lab.train` in this process."""
    for function in (centered, scaled, shuffled_rebn):
        estimator(str(function.__doc__))(function)
    estimator(str(normalized_gae.__doc__), critic_learns="advantage")(
        normalized_gae
    )  # as in the recorded runs


def _returns(turn_rewards: TurnRewards, gamma: float, truncated: Sequence[bool] | None) -> list[FloatArray]:
    if truncated is not None:
        raise ConfigError("truncation='mask' is not available for estimators of studies; use 'keep'")
    return returns(turn_rewards, gamma)
