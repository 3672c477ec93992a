"""Returns of turns, and the estimators that use nothing else: REINFORCE, ReBN, and REINFORCE++.

An episode is the list of its turn rewards; a batch is a list of episodes. Every turn gets one advantage,
which `to_tokens` copies to the turn's response tokens. The steps of ReBN are separate functions, because a
trainer may hold the rewards, the batch, and the tokens in different processes:

    gs = returns([[0, 0, 1], [0, 0]], gamma=0.9)      # per turn
    stats = ReturnStats.from_returns(gs)              # mergeable across ranks
    advantages = normalize(gs, stats)                 # per turn

`rebn` composes them: ``rebn([[0, 0, 1], [0, 0]], gamma=0.9)``. All arrays are float64. Leave out episodes
that are not trainable; an episode without turns yields an empty array and is excluded from statistics.

For a trainer's (rows, tokens) tensors, use the method `tensors` of an estimator. The functions here reject
tensors and two-dimensional arrays, because they would treat every token as a turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from gem_core._util.checks import check_choice
from gem_core.advantages._batch import StatsChoice, TurnRewards, as_turns, normalized, standardized
from gem_core.advantages._inputs import episode_arrays
from gem_core.advantages._registry import estimator
from gem_core.advantages._stats import FloatArray, ReturnStats
from gem_core.errors import ConfigError

Statistics: TypeAlias = Literal["batch", "env", "group"]
Weight: TypeAlias = Literal["turn", "episode"]


def returns(turn_rewards: TurnRewards, gamma: float = 1.0) -> list[FloatArray]:
    """Compute the discounted return of every turn.

    ``G_t = r_t + gamma * G_(t+1)``, with 0 after the last turn. Truncated episodes are not bootstrapped. The
    discount applies per turn, not per token.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        gamma: Discount per turn, from 0 to 1.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, or `gamma` is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the
            episode by its index in the list, and the turn.
    """
    turns = as_turns(turn_rewards)
    return turns.split(turns.returns(gamma))


def normalize(
    returns: Sequence[ArrayLike],
    stats: ReturnStats,
    *,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
) -> list[FloatArray]:
    """Return ``(G - mean) / (std + eps)`` for every turn, or 0 if the returns behind `stats` are all equal.

    Args:
        returns: One sequence of floats per episode, one return per turn.
        stats: Statistics of the whole training batch, over all ranks and all collected turns.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Returns count as equal if ``std <= min_std * max(1, |mean|)``.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `returns` is not a list of sequences, or `ddof`, `eps`, or `min_std` is out of range.
        NonFiniteReward: The squared deviations in `stats` overflow.
    """
    arrays = episode_arrays("returns", returns)
    return [normalized(array, None, stats, ddof=ddof, eps=eps, min_std=min_std) for array in arrays]


def to_tokens(advantages: Sequence[ArrayLike], turn_ids: Sequence[ArrayLike]) -> list[FloatArray]:
    """Copy each turn's advantage to its tokens.

    Args:
        advantages: One sequence of floats per episode, one entry per turn.
        turn_ids: One sequence of integers per episode, one entry per token: the index of the turn on
            its response tokens, -1 elsewhere (`gem_core.rollout.Row.turn_ids`).

    Returns:
        One float64 array per episode, of shape (tokens,); exactly 0 where the turn id is -1.

    Raises:
        ConfigError: The numbers of episodes differ, or a turn id has no corresponding turn.
    """
    if len(advantages) != len(turn_ids):
        raise ConfigError(f"{len(advantages)} episodes of advantages but {len(turn_ids)} of turn ids")
    rows = []
    for number, (turn_values, token_turns) in enumerate(zip(advantages, turn_ids, strict=True)):
        values = np.asarray(turn_values, dtype=np.float64)
        ids = np.asarray(token_turns)
        if ids.size and ids.dtype.kind not in "iu":
            raise ConfigError(f"episode {number}: turn ids are {ids.dtype}: expected integers")
        ids = ids.astype(np.int64)
        if ids.size and not -1 <= ids.min() <= ids.max() < len(values):
            raise ConfigError(
                f"episode {number}: turn ids from {ids.min()} to {ids.max()}: expected -1 or an index of its "
                f"{len(values)} turns"
            )
        rows.append(np.append(values, 0.0)[ids])  # -1 is the appended zero
    return rows


@estimator("returns without normalization", common=True)
def reinforce(
    turn_rewards: TurnRewards, *, gamma: float = 1.0, truncated: Sequence[bool] | None = None
) -> list[FloatArray]:
    """Compute REINFORCE advantages without a baseline: ``A_t = G_t``.

    Source: Williams 1992, with the reward-to-go of Sutton et al. 1999 ("Policy Gradient Methods for
    Reinforcement Learning with Function Approximation", theorem 1).

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        gamma: Discount per turn, from 0 to 1.
        truncated: One bool per episode; True masks the episode: its advantages are 0. None keeps truncated
            episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, or `gamma` is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    return turns.split(turns.returns(gamma))


@estimator(
    "returns of all turns, normalized over the batch",
    option_needs={"statistics": {"env": "env_ids", "group": "group_ids"}},
    collected_stats=True,
)
def rebn(
    turn_rewards: TurnRewards,
    *,
    gamma: float = 1.0,
    statistics: Statistics = "batch",
    weight: Weight = "turn",
    env_ids: Sequence[Hashable] | None = None,
    group_ids: Sequence[Hashable] | None = None,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    stats: StatsChoice = None,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute ReBN, return batch normalization: ``A_t = (G_t - mu) / (sigma + eps)``.

    mu and sigma are the mean and the standard deviation of the returns of all turns of the batch, each turn
    counted once.

    Source: "GEM: A Gym for Agentic LLMs", arXiv 2510.01051. Its code (github.com/axon-rl/gem,
    examples/train_oat/train_oat.py) uses eps = 1e-9 and the population standard deviation.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        gamma: Discount per turn, from 0 to 1.
        statistics: "batch" for one mu and sigma, "env" for one per environment, for a batch of tasks whose
            rewards differ in scale, or "group" for one per group.
        weight: "turn" to count every turn once in the statistics, "episode" to count every episode once,
            so that each of its turns has the weight 1 / turns.
        env_ids: One hashable id per episode; required for ``statistics="env"``.
        group_ids: One hashable id per episode; required for ``statistics="group"``.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Returns count as equal if ``std <= min_std * max(1, |mean|)``; the advantage is then 0.
        stats: Statistics to normalize by, for example over all ranks or including turns that a sampler
            dropped; or a function that computes them from the batch's own. None uses the batch's own.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and statistics exclude
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, ids are missing, an option is out of
            range, or `stats` is combined with statistics per environment or group.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    check_choice("statistics", statistics, ("batch", "env", "group"))
    check_choice("weight", weight, ("turn", "episode"))
    turns = as_turns(turn_rewards, truncated)
    turn_returns, weights = turns.returns(gamma), turns.weights(weight)
    if statistics == "batch":
        return turns.split(normalized(turn_returns, weights, stats, ddof=ddof, eps=eps, min_std=min_std))
    if stats is not None:
        raise ConfigError(f"statistics={statistics!r} cannot be combined with stats or a process group")
    name, ids = ("env_ids", env_ids) if statistics == "env" else ("group_ids", group_ids)
    if ids is None:
        raise ConfigError(f"statistics={statistics!r} needs {name}, one per episode")
    keys = turns.keys(name, ids)[turns.index]
    return turns.split(standardized(turn_returns, keys, weights, ddof=ddof, eps=eps, min_std=min_std))


@estimator("returns of all turns, normalized over the response tokens of the batch", common=True)
def reinforce_plus_plus(
    turn_rewards: TurnRewards,
    *,
    lengths: Sequence[ArrayLike] | None = None,
    gamma: float = 1.0,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    stats: StatsChoice = None,
    truncated: Sequence[bool] | None = None,
) -> list[FloatArray]:
    """Compute REINFORCE++: ``A_t = (G_t - mu) / (sigma + eps)``, with statistics over response tokens.

    It differs from `rebn` in one respect: a turn counts once per response token.

    Source: "REINFORCE++" (global advantage normalization), arXiv 2501.03262 (version 9), as in verl
    ``compute_reinforce_plus_plus_outcome_advantage`` (trainer/ppo/core_algos.py) and OpenRLHF
    ``algo.advantage.estimator=reinforce``. These discount per token, this function per turn.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        lengths: One sequence of integers per episode: response tokens per turn.
        gamma: Discount per turn, from 0 to 1.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Returns count as equal if ``std <= min_std * max(1, |mean|)``; the advantage is then 0.
        stats: Statistics to normalize by, or a function that computes them from the batch's own. None
            uses the batch's own.
        truncated: One bool per episode; True masks the episode: its advantages are 0, and statistics exclude
            it. None keeps truncated episodes as if they had terminated.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, `lengths` does not match it, or an
            option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    turns = as_turns(turn_rewards, truncated)
    gs = turns.returns(gamma)
    return turns.split(normalized(gs, turns.lengths(lengths), stats, ddof=ddof, eps=eps, min_std=min_std))
