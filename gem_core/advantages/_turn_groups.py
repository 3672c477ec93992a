"""Estimators that compare turns of a group with each other: MT-GRPO by turn index, GiGPO by state."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from gem_core._util.checks import check_choice
from gem_core.advantages._batch import IntArray, TurnRewards, as_turns, deviations, standardized
from gem_core.advantages._inputs import real
from gem_core.advantages._registry import estimator
from gem_core.advantages._stats import FloatArray

Compared: TypeAlias = Literal["reward", "return"]
Normalization: TypeAlias = Literal["mean_std", "mean"]


@estimator("rewards normalized in their group by turn index, then summed")
def mt_grpo(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    gamma: float = 1.0,
    compared: Compared = "reward",
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute MT-GRPO: ``A_t = sum_(k >= t) gamma^(k - t) * (r_k - mean_k) / (std_k + eps)``.

    mean_k and std_k are over the rewards that the episodes of the group earned in their turn k. An episode
    that has ended has no turn k, so the number of means subtracted from an episode's rewards depends on when
    it stops: if the policy decides when to stop, every decision to continue costs the mean of the rewards to
    come (github.com/verl-project/verl/issues/7244 describes the same bias).

    ``compared="return"`` removes this bias: ``A_t = G_t - mean_t``, where mean_t is the mean return from turn
    t on over all episodes of the group, and an episode that has ended counts as 0. The same baseline for turn
    t is then subtracted for every episode, whatever the episode does from turn t on.

    Source: "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Reward Design", arXiv 2505.11821,
    generalized from two turns; the same as its code (github.com/SiliangZeng/Multi-Turn-RL-Agent,
    verifiers/trainers/mt_grpo_env_trainer.py) for gamma = 1 and ``turn_advantage_coef=1``, the default. The
    code multiplies the first turn's own term by that coefficient, and gives an episode without a tool result
    the normalized sum of both rewards. ``compared="return"`` is our own derivation.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        gamma: Discount per turn, from 0 to 1.
        compared: "reward" as in the paper, or "return", the unbiased form, which divides by no standard
            deviation.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Rewards count as equal if ``std <= min_std * max(1, |mean|)``; they then contribute 0.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    check_choice("compared", compared, ("reward", "return"))
    turns = as_turns(turn_rewards, truncated)
    groups = turns.keys("group_ids", group_ids)
    turns.require_main_thread("mt_grpo", "it compares the turns of a group by their index")
    gs = turns.returns(gamma)
    cells = paired(groups[turns.index], turns.columns)
    if compared == "return":
        means = np.bincount(cells, gs) / np.bincount(groups)[groups[turns.index[first_of(cells)]]]
        return turns.split(gs - means[cells])
    scaled = standardized(turns.rewards, cells, ddof=ddof, eps=eps, min_std=min_std)
    return turns.split(turns.suffix_sums(scaled, gamma))


@estimator("episode returns and returns from the same state, normalized in their group", common=True)
def gigpo(
    turn_rewards: TurnRewards,
    *,
    group_ids: Sequence[Hashable],
    state_keys: Sequence[Sequence[Hashable]],
    gamma: float = 1.0,
    normalization: Normalization = "mean_std",
    step_weight: float = 1.0,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute GiGPO, group-in-group advantages: ``A_t = E_i + step_weight * S_t``.

    ``E_i = (R_i - mean) / F``, where ``R_i`` is the sum of the rewards of the episode, and the mean is over
    its group. ``S_t = (G_t - mean) / F``, over all turns of the group that began in the same state. F is
    ``std + eps`` or, with ``normalization="mean"``, 1. S is 0 for a turn that began in a state in which no
    other turn began.

    Source: "Group-in-Group Policy Optimization for LLM Agent Training", arXiv 2505.10978, equations 3 and
    5 to 8, as numbered in verl-agent ``compute_gigpo_outcome_advantage`` (gigpo/core_gigpo.py), which uses
    the sample standard deviation and eps = 1e-6. Its versions differ in whether an episode counts once or
    once per turn in the mean and standard deviation of R; here it counts once.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        state_keys: One sequence of hashable keys per episode, one per turn: the state it began in.
        gamma: Discount per turn in ``G_t``, from 0 to 1.
        normalization: "mean_std" to divide by the standard deviation, "mean" to only subtract the mean.
        step_weight: Weight of S, omega in the paper.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Values count as equal if ``std <= min_std * max(1, |mean|)``; they then contribute 0.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and its group ignores
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the group ids or state keys do not
            match it, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    check_choice("normalization", normalization, ("mean_std", "mean"))
    weight = real("step_weight", step_weight, 0)
    turns = as_turns(turn_rewards, truncated)
    groups = turns.keys("group_ids", group_ids)
    turns.require_main_thread("gigpo", "it compares returns from states, which a side thread does not have")
    anchors = paired(groups[turns.index], turns.keys_per_turn("state_keys", state_keys))

    def relative(values: FloatArray, keys: IntArray) -> FloatArray:
        if normalization == "mean":
            return deviations(values, keys)[2]
        return standardized(values, keys, ddof=ddof, eps=eps, min_std=min_std)

    episodes = relative(turns.totals(turns.rewards), groups)[turns.index]
    return turns.split(episodes + weight * relative(turns.returns(gamma), anchors))


def paired(first: IntArray, second: IntArray) -> IntArray:
    """Return the number of each pair of numbers, counted from 0."""
    pairs = first * (int(second.max(initial=-1)) + 1) + second
    _, numbers = np.unique(pairs, return_inverse=True)
    return np.asarray(numbers, dtype=np.int64).reshape(-1)


def first_of(keys: IntArray) -> IntArray:
    """Return the position of an element of each key, in the order of the keys."""
    positions = np.zeros(int(keys.max(initial=-1)) + 1, dtype=np.int64)
    positions[keys] = np.arange(len(keys))
    return positions
