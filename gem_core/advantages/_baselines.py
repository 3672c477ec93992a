"""Estimators whose baseline comes from outside the batch or depends on the role: ReMax and RAE."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from gem_core.advantages._batch import TurnRewards, as_turns, check_fraction, check_numbers
from gem_core.advantages._groups import leave_one_out
from gem_core.advantages._inputs import number_keys, plain_id
from gem_core.advantages._registry import estimator
from gem_core.advantages._stats import FloatArray


@estimator("returns minus the return of a greedy episode", common=True)
def remax(
    turn_rewards: TurnRewards,
    *,
    baselines: Sequence[float],
    gamma: float = 1.0,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute ReMax advantages: ``A_t = G_t - b_i``, where b_i is the return of a greedy episode.

    Source: "ReMax", arXiv 2310.10505, as in verl ``compute_remax_outcome_advantage``.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        baselines: One float per episode: the return of the greedy policy for the same task and seed.
        gamma: Discount per turn, from 0 to 1.
        truncated: One bool per episode; True masks the episode: its advantages are 0. None keeps truncated
            episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, `baselines` does not match it, or
            `gamma` is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    greedy = check_numbers("baselines", turns.per_episode("baselines", baselines))
    return turns.split(turns.returns(gamma) - greedy[turns.index])


@estimator("episode returns minus the baseline of the agent")
def rae(
    turn_rewards: TurnRewards,
    *,
    agent_ids: Sequence[Hashable],
    gamma: float = 1.0,
    role_baselines: Mapping[Hashable, float] | None = None,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute RAE, role-conditioned advantages: ``A_t = gamma^(T - 1 - t) * (R_i - b_p)``.

    ``R_i`` is the sum of the rewards of the episode, T its number of turns, and b_p the baseline of its
    agent (role) p. In the paper, b_p is a moving average over earlier episodes; `update_role_baselines`
    computes it. Without it, b_p is the mean of the other episodes of the role in this batch.

    Source: "SPIRAL" (role-conditioned advantage estimation), arXiv 2506.24119, as in its code
    (github.com/spiral-rl/spiral, train_spiral.py, ``prepare_trajectories``), which discounts only with
    ``use_intermediate_rewards``.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        agent_ids: One hashable id per episode: the agent, or a pair of environment and agent.
        gamma: Discount per turn, from 0 to 1, counted from the last turn.
        role_baselines: Baseline of each agent; 0 for an agent that is not in it. None uses the other episodes
            of the batch.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and baselines ignore
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of agent ids differs from
            the number of episodes, or `gamma` is out of range.
        NonFiniteReward: A reward is NaN or infinite; the message names the episode.
    """
    gamma = check_fraction("gamma", gamma)
    turns = as_turns(turn_rewards, truncated)
    turns.require_main_thread("rae", "it discounts by the number of turns that are left")
    agents = turns.ids("agent_ids", agent_ids)
    totals = turns.totals(turns.rewards)
    if role_baselines is None:
        gaps = leave_one_out(totals, number_keys(agents))
    else:
        known = _by_agent(role_baselines)
        gaps = totals - check_numbers("role_baselines", [known.get(agent, 0.0) for agent in agents])
    left = np.bincount(turns.index)[turns.index] - 1 - turns.columns
    return turns.split(gaps[turns.index] * np.power(gamma, left))


def update_role_baselines(
    role_baselines: Mapping[Hashable, float],
    turn_rewards: TurnRewards,
    agent_ids: Sequence[Hashable],
    *,
    decay: float = 0.95,
) -> dict[Hashable, float]:
    """Return the baselines for `rae` after a batch: ``b_p = decay * b_p + (1 - decay) * R_i``.

    Source: See `rae`.

    Args:
        role_baselines: Baselines before the batch; an agent that is not in it starts at 0.
        turn_rewards: One sequence of floats per episode, one reward per turn.
        agent_ids: One hashable id per episode.
        decay: Weight of the old baseline, from 0 to 1.

    Raises:
        ConfigError: The arguments do not match, or `decay` is out of range.
        NonFiniteReward: A reward is NaN or infinite; the message names the episode.
    """
    decay = check_fraction("decay", decay)
    turns = as_turns(turn_rewards)
    updated = _by_agent(role_baselines)
    agents = turns.ids("agent_ids", agent_ids)
    for agent, total in zip(agents, turns.totals(turns.rewards).tolist(), strict=True):
        updated[agent] = decay * updated.get(agent, 0.0) + (1 - decay) * total
    return updated


def _by_agent(role_baselines: Mapping[Hashable, float]) -> dict[Hashable, float]:
    return {plain_id("role_baselines", agent, "a key"): value for agent, value in role_baselines.items()}
