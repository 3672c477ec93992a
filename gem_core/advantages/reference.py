"""The definition of every estimator, in numpy: lists of turn rewards in, one array per episode out.

An episode is the list of its turn rewards; a batch is a list of episodes. Every turn gets one advantage,
which `to_tokens` copies to the turn's response tokens. The steps are separate functions, because a trainer
may hold the rewards, the batch and the tokens in different processes:

    gs = returns([[0, 0, 1], [0, 0]], gamma=0.9)      # per turn
    stats = ReturnStats.from_returns(gs)              # mergeable across ranks
    advantages = normalize(gs, stats)                 # per turn

`rebn` composes them: ``rebn([[0, 0, 1], [0, 0]], gamma=0.9)``. All arrays are float64. Leave out episodes
that are not trainable; an episode without turns yields an empty array and is excluded from statistics.

For a trainer's (rows, tokens) tensors, use the functions of the same names in
`gem_core.advantages.tensors`. The functions here reject tensors and two-dimensional arrays, because they
would treat every token as a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gem_core._util.checks import check_number
from gem_core.advantages.inputs import episode_arrays
from gem_core.advantages.stats import FloatArray, ReturnStats, inverse_std
from gem_core.errors import ConfigError, NonFiniteReward


def returns(turn_rewards: Sequence[ArrayLike], gamma: float = 1.0) -> list[FloatArray]:
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
    gs = [_suffix_sums(rewards, gamma) for rewards in _checked(turn_rewards, gamma)]
    for number, episode in enumerate(gs):
        if not np.isfinite(episode).all():
            raise NonFiniteReward(f"episode {number}: the return overflows float64; rescale the rewards")
    return gs


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
        ConfigError: `returns` is not a list of sequences, or `ddof`, `eps` or `min_std` is out of range.
        NonFiniteReward: The squared deviations in `stats` overflow.
    """
    scale = stats.scale(ddof=ddof, eps=eps, min_std=min_std)
    arrays = episode_arrays("returns", returns)
    if not scale:
        return [np.zeros_like(array) for array in arrays]
    return [(array - stats.mean) * scale for array in arrays]


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
    for number, (of_turns, of_tokens) in enumerate(zip(advantages, turn_ids, strict=True)):
        values = np.asarray(of_turns, dtype=np.float64)
        ids = np.asarray(of_tokens, dtype=np.int64)
        if ids.size and not -1 <= ids.min() <= ids.max() < len(values):
            raise ConfigError(
                f"episode {number}: turn ids from {ids.min()} to {ids.max()} for {len(values)} turns"
            )
        rows.append(np.append(values, 0.0)[ids])  # -1 is the appended zero
    return rows


def rebn(
    turn_rewards: Sequence[ArrayLike],
    *,
    gamma: float = 1.0,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
    stats: ReturnStats | None = None,
) -> list[FloatArray]:
    """Compute ReBN (return batch normalization; "GEM: A Gym for Agentic LLMs", arXiv 2510.01051).

    ``A_t = (G_t - mu) / (sigma + eps)``, with mu and sigma over the returns of all turns of the batch,
    each turn counted once. The paper uses eps = 1e-9 and the population standard deviation.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        gamma: Discount per turn, from 0 to 1.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Returns count as equal if ``std <= min_std * max(1, |mean|)``; the advantage is then 0.
        stats: Statistics to normalize by, for example over all ranks or including turns that a sampler
            dropped. None computes them from `turn_rewards`.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    gs = returns(turn_rewards, gamma)
    batch = ReturnStats.from_returns(gs) if stats is None else stats
    return normalize(gs, batch, ddof=ddof, eps=eps, min_std=min_std)


def reinforce(turn_rewards: Sequence[ArrayLike], *, gamma: float = 1.0) -> list[FloatArray]:
    """Compute REINFORCE advantages without a baseline (Williams 1992): ``A_t = G_t``.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        gamma: Discount per turn, from 0 to 1.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, or `gamma` is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    return returns(turn_rewards, gamma)


def grpo(
    turn_rewards: Sequence[ArrayLike],
    group_ids: Sequence[Hashable],
    *,
    gamma: float = 1.0,
    ddof: int = 0,
    eps: float = 1e-8,
    min_std: float = 1e-6,
) -> list[FloatArray]:
    """Compute group relative advantages (GRPO with outcome rewards; DeepSeekMath, arXiv 2402.03300).

    The score of an episode is its return from the first turn, ``R_i = G_0``. Every turn of episode i gets
    ``(R_i - mean(R)) / (std(R) + eps)``, with mean and std over the episodes of its group. In a group of
    one episode, or of equal scores, the advantage is 0.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        gamma: Discount per turn inside ``G_0``, from 0 to 1; 1 gives the plain sum of rewards.
        ddof: 0 for the population standard deviation of a group, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: The scores of a group count as equal if ``std <= min_std * max(1, |mean|)``;
            their advantage is then 0.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """

    def normalized(scores: FloatArray, groups: NDArray[np.int64]) -> FloatArray:
        return grpo_scores(scores, groups, ddof=ddof, eps=eps, min_std=min_std)

    return _grouped(turn_rewards, group_ids, gamma, normalized)


def rloo(
    turn_rewards: Sequence[ArrayLike], group_ids: Sequence[Hashable], *, gamma: float = 1.0
) -> list[FloatArray]:
    """Compute REINFORCE leave-one-out advantages (RLOO; Ahmadian et al. 2024, arXiv 2402.14740).

    The score of an episode is its return from the first turn, ``R_i = G_0``. Every turn of episode i gets
    ``R_i - mean(R_j, j != i)``, with the mean over the other episodes of its group. In a group of one
    episode the advantage is 0.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        group_ids: One hashable id per episode. Episodes of the same task and seed share an id.
        gamma: Discount per turn inside ``G_0``, from 0 to 1; 1 gives the plain sum of rewards.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, the number of group ids differs from
            the number of episodes, or `gamma` is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    return _grouped(turn_rewards, group_ids, gamma, rloo_scores)


def gae(
    turn_rewards: Sequence[ArrayLike],
    values: Sequence[ArrayLike],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: Sequence[float] | None = None,
) -> list[FloatArray]:
    """Compute generalized advantage estimates over turns (GAE; Schulman et al. 2016, arXiv 1506.02438).

    ``delta_t = r_t + gamma * V_(t+1) - V_t`` and ``A_t = delta_t + gamma * lam * A_(t+1)``. The target of
    the critic is ``A_t + V_t``.

    Args:
        turn_rewards: One sequence of floats per episode, one reward per turn.
        values: One sequence of floats per episode, one per turn: the critic's value of the state in which
            the turn was chosen.
        gamma: Discount per turn, from 0 to 1.
        lam: Lambda, from 0 (one-step temporal difference) to 1 (Monte Carlo return minus the value).
        bootstrap: One float per episode, the value after the last turn: 0 for a terminated episode, the
            critic's value for a truncated episode that is to be bootstrapped. None means 0 for all.

    Returns:
        One float64 array per episode, of shape (turns,).

    Raises:
        ConfigError: `turn_rewards` or `values` is not a list of sequences, their shapes differ, a value is
            not finite, or an option is out of range.
        NonFiniteReward: A reward is NaN or infinite, or a return overflows; the message names the episode.
    """
    check_fraction("lam", lam)
    episodes = _checked(turn_rewards, gamma)
    values = episode_arrays("values", values)
    after = [0.0] * len(episodes) if bootstrap is None else [float(value) for value in bootstrap]
    if not len(episodes) == len(values) == len(after):
        raise ConfigError(
            f"{len(episodes)} episodes of rewards, {len(values)} of values and {len(after)} bootstrap values"
        )
    advantages = []
    for number, (rewards, value, last) in enumerate(zip(episodes, values, after, strict=True)):
        if value.shape != rewards.shape:
            raise ConfigError(f"episode {number}: {len(rewards)} rewards but {len(value)} values")
        check_values(np.append(value, last), f"episode {number}")
        following = np.append(value[1:], last)[: len(value)]
        advantages.append(_suffix_sums(rewards + gamma * following - value, gamma * lam))
    return advantages


# -- shared with the tensor form ----------------------------------------------------------------


def grpo_scores(
    scores: FloatArray, groups: NDArray[np.int64], *, ddof: int, eps: float, min_std: float
) -> FloatArray:
    """Compute `grpo` for float64 scores of shape (episodes,), with the group index of each episode."""
    count, mean, deviations = _group_deviations(scores, groups)
    m2 = np.bincount(groups, np.square(deviations), minlength=len(count))
    return deviations * inverse_std(count, mean, m2, ddof=ddof, eps=eps, min_std=min_std)[groups]


def rloo_scores(scores: FloatArray, groups: NDArray[np.int64]) -> FloatArray:
    """Compute `rloo` for float64 scores of shape (episodes,), with the group index of each episode.

    The deviation of score i from the mean of the other scores in a group of n is n / (n - 1) times its
    deviation from the mean of the group.
    """
    count, _, deviations = _group_deviations(scores, groups)
    return deviations * np.where(count > 1, count / np.maximum(count - 1, 1), 0.0)[groups]


def number_groups(group_ids: Sequence[Hashable]) -> NDArray[np.int64]:
    """Return the group index of each id; groups are numbered from 0 in the order of their first episode."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in group_ids], dtype=np.int64)


def check_fraction(name: str, value: float) -> None:
    """Raise a ConfigError unless `value` lies in [0, 1]."""
    check_number(name, float(value), 0, 1)


def check_values(values: FloatArray, where: str) -> None:
    """Raise a ConfigError unless all values of the critic are finite."""
    if not np.isfinite(values).all():
        raise ConfigError(f"{where}: the critic's values are not finite")


def _group_deviations(
    scores: FloatArray, groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """Return the size and mean of every group, and each score's deviation from the mean of its group."""
    count = np.bincount(groups)
    mean = np.bincount(groups, scores) / np.maximum(count, 1)
    return count, mean, scores - mean[groups]


def _grouped(
    turn_rewards: Sequence[ArrayLike],
    group_ids: Sequence[Hashable],
    gamma: float,
    compare: Callable[[FloatArray, NDArray[np.int64]], FloatArray],
) -> list[FloatArray]:
    """Compute one advantage per episode from the scores and groups, and repeat it on every turn."""
    gs = returns(turn_rewards, gamma)
    if len(group_ids) != len(gs):
        raise ConfigError(f"{len(gs)} episodes but {len(group_ids)} group ids")
    played = [number for number, episode in enumerate(gs) if len(episode)]
    scores = np.array([gs[number][0] for number in played], dtype=np.float64)
    groups = number_groups([group_ids[number] for number in played])
    advantages = dict(zip(played, compare(scores, groups), strict=True))
    return [np.full(len(episode), advantages.get(number, 0.0)) for number, episode in enumerate(gs)]


def _checked(turn_rewards: Sequence[ArrayLike], gamma: float) -> list[FloatArray]:
    check_fraction("gamma", gamma)
    episodes = episode_arrays("turn_rewards", turn_rewards)
    for number, rewards in enumerate(episodes):
        if not (finite := np.isfinite(rewards)).all():
            turn = int(finite.argmin())
            raise NonFiniteReward(f"episode {number}, turn {turn}: reward {rewards[turn]} is not finite")
    return episodes


def _suffix_sums(values: FloatArray, factor: float) -> FloatArray:
    """Return ``s_t = x_t + factor * s_(t+1)`` for every t."""
    sums: list[float] = []
    for value in reversed(values.tolist()):
        sums.append(value + factor * sums[-1] if sums else value)
    return np.array(sums[::-1], dtype=np.float64)
