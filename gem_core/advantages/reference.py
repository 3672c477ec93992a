"""The definition of every estimator, in numpy: episodes of turn rewards in, one array each out.

An episode is its list of turn rewards. A credit belongs to a turn; `to_tokens` copies it to the
turn's response tokens. In parts, because trainers have rewards, batch and tokens in different
processes:

    gs = returns([[0, 0, 1], [0, 0]], gamma=0.9)      # per turn
    stats = ReturnStats.from_returns(gs)              # mergeable over ranks
    advantages = normalize(gs, stats)                 # per turn

and composed: ``rebn([[0, 0, 1], [0, 0]], gamma=0.9)``. Arrays are float64. Leave untrainable
episodes out; an episode without turns gives an empty array and is in no statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gem_core.advantages.stats import FloatArray, ReturnStats, inverse_std
from gem_core.errors import ConfigError, NonFiniteReward


def returns(turn_rewards: Sequence[ArrayLike], gamma: float = 1.0) -> list[FloatArray]:
    """Discounted return of every turn: ``G_t = r_t + gamma * G_(t+1)``, 0 after the last turn.

    A truncated episode is not bootstrapped. The discount counts turns, not tokens.

    Args:
        turn_rewards: One sequence of rewards per episode.
        gamma: Discount per turn, in [0, 1].

    Raises:
        NonFiniteReward: A reward is NaN or infinite; names the episode (its place in the list) and
            the turn.
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
    """``(G - mean) / (std + eps)`` per turn; 0 when the returns behind `stats` do not differ.

    Args:
        returns: One array of returns per episode.
        stats: Of the whole training batch: all ranks, all collected turns.
        ddof: 0 divides by the count, 1 by count - 1.
        eps: Added to the standard deviation.
        min_std: Returns count as equal when ``std <= min_std * max(1, |mean|)``.
    """
    scale = stats.scale(ddof=ddof, eps=eps, min_std=min_std)
    arrays = [np.asarray(episode, dtype=np.float64) for episode in returns]
    if not scale:
        return [np.zeros_like(array) for array in arrays]
    return [(array - stats.mean) * scale for array in arrays]


def to_tokens(advantages: Sequence[ArrayLike], turn_ids: Sequence[ArrayLike]) -> list[FloatArray]:
    """Copy each turn's credit to its tokens.

    Args:
        advantages: One array per episode, one entry per turn.
        turn_ids: One array per episode, one entry per token: the turn's number on its response
            tokens, -1 elsewhere (`Sequence.turn_ids`).

    Returns:
        One array per episode, one entry per token, exactly 0 where the turn id is -1.
    """
    if len(advantages) != len(turn_ids):
        raise ConfigError(f"{len(advantages)} episodes of advantages but {len(turn_ids)} of turn ids")
    rows = []
    for number, (given, ids_given) in enumerate(zip(advantages, turn_ids, strict=True)):
        credit = np.asarray(given, dtype=np.float64)
        ids = np.asarray(ids_given, dtype=np.int64)
        if ids.size and not -1 <= ids.min() <= ids.max() < len(credit):
            raise ConfigError(
                f"episode {number}: turn ids from {ids.min()} to {ids.max()} for {len(credit)} turns"
            )
        rows.append(np.append(credit, 0.0)[ids])  # -1 is the appended zero
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
    """Return batch normalisation (ReBN; "GEM: A Gym for Agentic LLMs", arXiv 2510.01051).

    ``A_t = (G_t - mu) / (sigma + eps)`` with mu and sigma over all turns of the batch, each counted
    once. The paper has eps = 1e-9 and the population standard deviation.

    Args:
        turn_rewards: One sequence of rewards per episode.
        gamma: Discount per turn.
        ddof: See `normalize`, as for `eps` and `min_std`.
        eps: See `normalize`.
        min_std: See `normalize`.
        stats: Of a larger set of turns than these (other ranks, turns a sampler dropped); None
            takes the statistics of `turn_rewards`.
    """
    gs = returns(turn_rewards, gamma)
    batch = ReturnStats.from_returns(gs) if stats is None else stats
    return normalize(gs, batch, ddof=ddof, eps=eps, min_std=min_std)


def reinforce(turn_rewards: Sequence[ArrayLike], *, gamma: float = 1.0) -> list[FloatArray]:
    """REINFORCE without a baseline (Williams 1992): ``A_t = G_t``."""
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
    """Group relative advantage (GRPO with outcome rewards; DeepSeekMath, arXiv 2402.03300).

    An episode's score is its return from the start, ``R_i = G_0``. Every turn of episode i gets
    ``(R_i - mean(R)) / (std(R) + eps)`` with mean and std over the episodes of its group.

    Args:
        turn_rewards: One sequence of rewards per episode.
        group_ids: One per episode: which episodes started from the same task and seed.
        gamma: Discount per turn inside ``G_0``; 1 is the plain sum of rewards.
        ddof: See `normalize`, as for `eps` and `min_std`; here over the scores of a group. A group
            of one, or of equal scores, gives 0.
        eps: See `normalize`.
        min_std: See `normalize`.
    """

    def credit(scores: FloatArray, groups: NDArray[np.int64]) -> FloatArray:
        return grpo_scores(scores, groups, ddof=ddof, eps=eps, min_std=min_std)

    return _grouped(turn_rewards, group_ids, gamma, credit)


def rloo(
    turn_rewards: Sequence[ArrayLike], group_ids: Sequence[Hashable], *, gamma: float = 1.0
) -> list[FloatArray]:
    """REINFORCE leave-one-out (RLOO; Ahmadian et al. 2024, arXiv 2402.14740).

    Every turn of episode i gets ``R_i - mean(R_j, j != i)`` over its group, with ``R_i = G_0`` as in
    `grpo`. A group of one has nobody to be compared with and gives 0.
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
    """Generalised advantage estimation over turns (GAE; Schulman et al. 2016, arXiv 1506.02438).

    ``delta_t = r_t + gamma * V_(t+1) - V_t`` and ``A_t = delta_t + gamma * lam * A_(t+1)``. The
    critic's target is ``A_t + V_t``.

    Args:
        turn_rewards: One sequence of rewards per episode.
        values: One sequence per episode: V of the state in which each turn was chosen.
        gamma: Discount per turn.
        lam: 1 is Monte Carlo minus baseline, 0 one-step temporal difference.
        bootstrap: Value after the last turn, one per episode: 0 for a terminated episode, the
            critic's value for a truncated one that is to be bootstrapped. None means 0 for all.
    """
    check_fraction("lam", lam)
    episodes = _checked(turn_rewards, gamma)
    after = [0.0] * len(episodes) if bootstrap is None else [float(value) for value in bootstrap]
    if not len(episodes) == len(values) == len(after):
        raise ConfigError(
            f"{len(episodes)} episodes of rewards, {len(values)} of values and {len(after)} bootstrap values"
        )
    advantages = []
    for number, (rewards, given, last) in enumerate(zip(episodes, values, after, strict=True)):
        value = np.asarray(given, dtype=np.float64)
        if value.shape != rewards.shape:
            raise ConfigError(f"episode {number}: {len(rewards)} rewards but values of shape {value.shape}")
        check_values(np.append(value, last), f"episode {number}")
        following = np.append(value[1:], last)[: len(value)]
        advantages.append(_suffix_sums(rewards + gamma * following - value, gamma * lam))
    return advantages


# -- shared with the tensor form ----------------------------------------------------------------


def grpo_scores(
    scores: FloatArray, groups: NDArray[np.int64], *, ddof: int, eps: float, min_std: float
) -> FloatArray:
    """`grpo` on one score per episode; `groups` numbers the groups from 0."""
    count, mean, deviations = _group_deviations(scores, groups)
    m2 = np.bincount(groups, np.square(deviations), minlength=len(count))
    return deviations * inverse_std(count, mean, m2, ddof=ddof, eps=eps, min_std=min_std)[groups]


def rloo_scores(scores: FloatArray, groups: NDArray[np.int64]) -> FloatArray:
    """`rloo` on one score per episode: leaving i out of the mean scales its deviation by n / (n - 1)."""
    count, _, deviations = _group_deviations(scores, groups)
    return deviations * np.where(count > 1, count / np.maximum(count - 1, 1), 0.0)[groups]


def number_groups(group_ids: Sequence[Hashable]) -> NDArray[np.int64]:
    """Groups numbered from 0 in the order of their first episode."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(group, len(numbers)) for group in group_ids], dtype=np.int64)


def check_fraction(name: str, value: float) -> None:
    """Raise a ConfigError unless `value` lies in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name} is {value!r}; expected a number from 0 to 1")


def check_values(values: FloatArray, where: str) -> None:
    """Raise a ConfigError unless the critic's values are finite."""
    if not np.isfinite(values).all():
        raise ConfigError(f"{where}: the critic's values are not finite")


def _group_deviations(
    scores: FloatArray, groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """Count and mean per group, and each score minus its group's mean."""
    count = np.bincount(groups)
    mean = np.bincount(groups, scores) / np.maximum(count, 1)
    return count, mean, scores - mean[groups]


def _grouped(
    turn_rewards: Sequence[ArrayLike],
    group_ids: Sequence[Hashable],
    gamma: float,
    credit: Callable[[FloatArray, NDArray[np.int64]], FloatArray],
) -> list[FloatArray]:
    """One credit per episode, from its score and its group, repeated on each of its turns."""
    gs = returns(turn_rewards, gamma)
    if len(group_ids) != len(gs):
        raise ConfigError(f"{len(gs)} episodes but {len(group_ids)} group ids")
    played = [number for number, episode in enumerate(gs) if len(episode)]
    scores = np.array([gs[number][0] for number in played], dtype=np.float64)
    credits = dict(zip(played, credit(scores, number_groups([group_ids[n] for n in played])), strict=True))
    return [np.full(len(episode), credits.get(number, 0.0)) for number, episode in enumerate(gs)]


def _checked(turn_rewards: Sequence[ArrayLike], gamma: float) -> list[FloatArray]:
    check_fraction("gamma", gamma)
    episodes = [np.asarray(rewards, dtype=np.float64) for rewards in turn_rewards]
    for number, rewards in enumerate(episodes):
        if rewards.ndim != 1:
            raise ConfigError(
                f"episode {number}: expected a sequence of turn rewards, got shape {rewards.shape}; "
                "a batch is a list of episodes"
            )
        if not (finite := np.isfinite(rewards)).all():
            turn = int(finite.argmin())
            raise NonFiniteReward(f"episode {number}, turn {turn}: reward {rewards[turn]} is not finite")
    return episodes


def _suffix_sums(values: FloatArray, factor: float) -> FloatArray:
    """``s_t = x_t + factor * s_(t+1)``."""
    sums: list[float] = []
    for value in reversed(values.tolist()):
        sums.append(value + factor * sums[-1] if sums else value)
    return np.array(sums[::-1], dtype=np.float64)
