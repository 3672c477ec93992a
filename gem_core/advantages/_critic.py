"""The estimator that uses a critic: GAE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from gem_core.advantages._batch import TurnRewards, as_turns, check_fraction, check_numbers
from gem_core.advantages._registry import estimator
from gem_core.advantages._stats import FloatArray


@estimator("generalized advantage estimation, with a critic", critic_learns="advantage", common=True)
def gae(
    turn_rewards: TurnRewards,
    *,
    values: Sequence[ArrayLike],
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Sequence[float] | None = None,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute generalized advantage estimates over turns: ``A_t = delta_t + gamma * lam * A_(t+1)``.

    ``delta_t = r_t + gamma * V_(t+1) - V_t``. The target of the critic is ``A_t + V_t``.

    Source: GAE, Schulman et al. 2016, arXiv 1506.02438, equation 16.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        values: One sequence of floats per episode, one per turn: the critic's value of the state in which
            the turn was chosen.
        gamma: Discount per turn, from 0 to 1.
        lam: Lambda, from 0 (one-step temporal difference) to 1 (Monte Carlo return minus the value).
        bootstrap: One float per episode, the value after the last turn: 0 for a terminated episode, the
            critic's value for a truncated episode that is to be bootstrapped. None means 0 for all.
        truncated: One bool per episode; True masks the episode: its advantages are 0. None keeps truncated
            episodes, bootstrapped or as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` or `values` is not a list of sequences, their shapes differ, a value is
            not finite, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    gamma, lam = check_fraction("gamma", gamma), check_fraction("lam", lam)
    turns = as_turns(turn_rewards, truncated)
    turns.require_main_thread("gae", "the values of a critic are along one sequence of states")
    value = turns.per_turn("values", values)
    last = np.zeros(len(turns.starts))
    if bootstrap is not None:
        last = check_numbers("bootstrap", turns.per_episode("bootstrap", bootstrap))
    deltas = turns.rewards + gamma * turns.following(value, last) - value
    return turns.split(turns.suffix_sums(deltas, gamma * lam))
