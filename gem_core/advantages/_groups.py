"""Estimators that compare the episodes of a group by their return: GRPO, Dr. GRPO, RLOO, OPO, and others.

The score of an episode is its return from the first turn, ``R_i = G_0``. Every turn of an episode gets the
same advantage. In a group of one episode, or of equal scores, the advantage is 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from gem_core._util.checks import expected
from gem_core.advantages._batch import (
    IntArray,
    StatsChoice,
    TurnRewards,
    as_turns,
    check_numbers,
    deviations,
    normalized,
    standardized,
)
from gem_core.advantages._registry import estimator
from gem_core.advantages._stats import FloatArray
from gem_core.errors import ConfigError


@estimator("episode returns, normalized in their group", common=True)
def grpo(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    gamma: float = 1.0,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute group relative advantages: ``A_i = (R_i - mean(R)) / (std(R) + eps)`` over the group.

    Source: GRPO with outcome supervision, DeepSeekMath, arXiv 2402.03300, section 4.1.2; verl
    ``compute_grpo_outcome_advantage`` (trainer/ppo/core_algos.py), which uses ddof = 1 and eps = 1e-6.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        gamma: Discount per turn inside ``G_0``, from 0 to 1; 1 gives the plain sum of rewards.
        ddof: 0 for the population standard deviation of a group, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: The scores of a group count as equal if ``std <= min_std * max(1, |mean|)``;
            their advantage is then 0.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    groups = turns.keys("group_ids", group_ids)
    scores = standardized(turns.scores(gamma), groups, ddof=ddof, eps=eps, min_std=min_std)
    return turns.split(scores[turns.index])


@estimator("episode returns minus the mean of their group", common=True)
def dr_grpo(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    gamma: float = 1.0,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute the advantages of Dr. GRPO: ``A_i = R_i - mean(R)`` over the group.

    Source: "Understanding R1-Zero-Like Training", arXiv 2503.20783, which also drops the division of the loss
    by the length of the response; verl ``compute_grpo_outcome_advantage`` with
    ``norm_adv_by_std_in_grpo=False``, OpenRLHF ``algo.advantage.estimator=dr_grpo``.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        gamma: Discount per turn inside ``G_0``, from 0 to 1; 1 gives the plain sum of rewards.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    _, _, gaps = deviations(turns.scores(gamma), turns.keys("group_ids", group_ids))
    return turns.split(gaps[turns.index])


@estimator("episode returns minus the mean of the others in their group", common=True)
def rloo(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    gamma: float = 1.0,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute REINFORCE leave-one-out advantages: ``A_i = R_i - mean(R_j, j != i)`` over the group.

    Source: RLOO, Ahmadian et al. 2024, arXiv 2402.14740, as in verl ``compute_rloo_outcome_advantage`` and
    OpenRLHF ``algo.advantage.estimator=rloo``.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        gamma: Discount per turn inside ``G_0``, from 0 to 1; 1 gives the plain sum of rewards.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    groups = turns.keys("group_ids", group_ids)
    return turns.split(leave_one_out(turns.scores(gamma), groups)[turns.index])


@estimator("episode returns minus the mean of their group, weighted by response tokens", common=True)
def opo(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    lengths: Sequence[ArrayLike] | None = None,
    gamma: float = 1.0,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute OPO advantages: ``A_i = R_i - sum(l_j * R_j) / sum(l_j)`` over the group.

    ``l_j`` is the number of response tokens of episode j. The baseline minimizes the variance of the gradient
    if the squared gradient norm of a response is proportional to its length.

    Source: "On-Policy RL with Optimal Reward Baseline", arXiv 2505.23585, as in verl
    ``compute_opo_outcome_advantage``, which leaves the score of a group of one uncentered.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        lengths: One sequence of integers per episode: response tokens per turn.
        gamma: Discount per turn inside ``G_0``, from 0 to 1; 1 gives the plain sum of rewards.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    groups = turns.keys("group_ids", group_ids)
    _, _, gaps = deviations(turns.scores(gamma), groups, turns.totals(turns.lengths(lengths)))
    return turns.split(gaps[turns.index])


@estimator("episode returns divided by the mean of their group, minus 1", common=True)
def maxrl(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    gamma: float = 1.0,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute MaxRL advantages: ``A_i = (R_i - mean(R)) / mean(R)`` over the group; 0 if all scores are 0.

    With a success of 0 or 1 as the return, the gradient approaches the gradient of the log of the success
    probability as the group grows.

    Source: "Maximum Likelihood Reinforcement Learning", arXiv 2602.02710; its code
    (github.com/tajwarfahim/maxrl, ``compute_maxrl_outcome_advantage`` in verl/trainer/ppo/core_algos.py) adds
    1e-6 to the denominator.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        gamma: Discount per turn inside ``G_0``, from 0 to 1; 1 gives the plain sum of rewards.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, a return is negative, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    scores = turns.scores(gamma)
    if (scores < 0).any():
        row = turns.rows[turns.starts][int(scores.argmin())]
        raise ConfigError(
            f"maxrl: {turns.noun} {row} has the return {scores.min()}: expected returns of at least 0, such "
            "as 1 for success and 0 otherwise"
        )
    groups = turns.keys("group_ids", group_ids)
    _, mean, gaps = deviations(scores, groups)
    return turns.split((gaps / np.where(mean > 0, mean, 1.0)[groups])[turns.index])


@estimator(
    "episode returns minus the mean of their group, normalized over the tokens of the batch", common=True
)
def reinforce_plus_plus_baseline(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    lengths: Sequence[ArrayLike] | None = None,
    gamma: float = 1.0,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    stats: StatsChoice = None,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute REINFORCE++ with baseline: ``A_i = (B_i - mu) / (sigma + eps)``, ``B_i = R_i - mean(R)``.

    mean(R) is over the group; mu and sigma are the mean and the standard deviation of B over all response
    tokens of the batch.

    Source: REINFORCE++ with baseline, arXiv 2501.03262 (version 9), as in verl
    ``compute_reinforce_plus_plus_baseline_outcome_advantage`` and OpenRLHF
    ``algo.advantage.estimator=reinforce_baseline``. verl leaves the score of a group of one uncentered.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        lengths: One sequence of integers per episode: response tokens per turn.
        gamma: Discount per turn inside ``G_0``, from 0 to 1; 1 gives the plain sum of rewards.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Values count as equal if ``std <= min_std * max(1, |mean|)``; the advantage is then 0.
        stats: Statistics to normalize by, or a function that computes them from the batch's own. None
            uses the batch's own.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    _, _, gaps = deviations(turns.scores(gamma), turns.keys("group_ids", group_ids))
    weights = turns.lengths(lengths)
    return turns.split(normalized(gaps[turns.index], weights, stats, ddof=ddof, eps=eps, min_std=min_std))


@estimator("components of the reward, each normalized in its group, then summed and normalized", common=True)
def gdpo(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    reward_components: Sequence[ArrayLike],
    gamma: float = 1.0,
    component_weights: Sequence[float] | None = None,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    stats: StatsChoice = None,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute GDPO, with rewards normalized one by one: ``A_i = (S_i - mu) / (sigma + eps)``.

    ``S_i = sum_c w_c * (R_ic - mean(R_c)) / (std(R_c) + eps)``, where ``R_ic`` is the return of component c
    and mean and std are over the group. mu and sigma are the mean and the standard deviation of S over all
    episodes of the batch.

    Source: "GDPO: Group reward-Decoupled Normalization Policy Optimization", arXiv 2601.05242; verl
    ``compute_gdpo_outcome_advantage``, which counts an episode once per response token in mu and sigma.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn. Advantages depend only on
            the components.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        reward_components: One array of shape (turns, components) per episode.
        gamma: Discount per turn inside each return, from 0 to 1; 1 gives the plain sum of rewards.
        component_weights: One weight per component; None gives each the weight 1.
        ddof: 0 for the population standard deviation of a group, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: The scores of a group count as equal if ``std <= min_std * max(1, |mean|)``;
            their advantage is then 0.
        stats: Statistics of S to normalize by, or a function that computes them from the batch's own. None
            uses the batch's own.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, the components do not match the turns, or an option is out of
            range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    groups = turns.keys("group_ids", group_ids)
    components = turns.components("reward_components", reward_components).T
    weights = np.ones(len(components))
    if component_weights is not None:
        weights = check_numbers("component_weights", component_weights)
        if len(weights) != len(components) or not weights.any():
            raise expected("component_weights", component_weights, f"{len(components)} weights, not all 0")
    sums = np.zeros(len(turns.starts))
    for weight, rewards in zip(weights, components, strict=True):
        _, scores = turns.returns_of(rewards, gamma)
        sums += weight * standardized(scores, groups, ddof=ddof, eps=eps, min_std=min_std)
    scaled = normalized(sums, None, stats, ddof=ddof, eps=eps, min_std=min_std)
    return turns.split(scaled[turns.index])


def leave_one_out(scores: FloatArray, groups: IntArray) -> FloatArray:
    """Return each score minus the mean of the other scores in its group; 0 in a group of one.

    In a group of n, this is n / (n - 1) times the deviation from the mean of the group.
    """
    count, _, gaps = deviations(scores, groups)
    return np.asarray(gaps * np.where(count > 1, count / np.maximum(count - 1, 1), 0.0)[groups])
