"""Random batches as turns and as tokens, and gem_core's estimators on them with named changes.

N rows (episodes), n turns, K response tokens, T positions. An environment's message of at least one token
separates the turns of an episode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gem_core.advantages import ReturnStats, get_estimator

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Changes = Mapping[str, Any]

BASES = {"reinforce_plus_plus": "reinforce", "reinforce_plus_plus_baseline": "dr_grpo"}
"""What an estimator normalizes over the response tokens of the batch."""


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of episodes.

    Attributes:
        rewards: float64 (n,), reward of each turn.
        rows: int64 (n,), episode of each turn, ascending.
        lengths: int64 (n,), response tokens of each turn.
        gaps: int64 (n,), tokens of the environment before each turn; 0 before the first.
        groups: int64 (N,), group of each episode.
        gamma: Discount.
        lam: Lambda of GAE.
        values: float64 (N, T), the critic's output at every position, 0 after the last response token.
        baselines: float64 (N,), return of a greedy episode.
        components: float64 (n, C), components of the rewards.
        keys: One state key per turn.
    """

    rewards: FloatArray
    rows: IntArray
    lengths: IntArray
    gaps: IntArray
    groups: IntArray
    gamma: float = 1.0
    lam: float = 1.0
    values: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    baselines: FloatArray = field(default_factory=lambda: np.zeros(0))
    components: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    keys: Sequence[Any] = ()

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.groups)

    @property
    def group_size(self) -> int:
        """Episodes per group, if all groups have the same size."""
        sizes = set(np.bincount(self.groups).tolist())
        assert len(sizes) == 1, sizes
        return int(sizes.pop())

    @cached_property
    def starts(self) -> IntArray:
        """First position of each turn."""
        ends = np.cumsum(self.lengths + self.gaps)
        first = np.searchsorted(self.rows, self.rows)
        before = (ends - self.lengths - self.gaps)[first]
        return np.asarray(ends - self.lengths - before)

    @cached_property
    def token_turns(self) -> IntArray:
        """Turn of each response token, (K,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def positions(self) -> IntArray:
        """Position of each response token in its row, (K,)."""
        first = np.cumsum(self.lengths) - self.lengths
        return np.asarray(
            np.arange(len(self.token_turns)) - first[self.token_turns] + self.starts[self.token_turns]
        )

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Response mask, (N, T)."""
        mask = np.zeros((self.episodes, int(self.positions.max()) + 1), dtype=bool)
        mask[self.rows[self.token_turns], self.positions] = True
        return mask

    @cached_property
    def token_rewards(self) -> FloatArray:
        """Rewards at the last token of their turns, float64 (N, T)."""
        rewards = np.zeros(self.mask.shape)
        rewards[self.rows, self.starts + self.lengths - 1] = self.rewards
        return rewards

    @cached_property
    def scores(self) -> FloatArray:
        """Sum of the rewards of each episode."""
        return np.bincount(self.rows, self.rewards, self.episodes)

    @cached_property
    def turn_ids(self) -> IntArray:
        """Index of each turn in its episode, (n,)."""
        return np.asarray(np.arange(len(self.rows)) - np.searchsorted(self.rows, self.rows))

    def at_tokens(self, matrix: Any) -> FloatArray:
        """Return the entries of a matrix (N, T) at the response tokens, float64 (K,)."""
        return np.asarray(np.asarray(matrix, dtype=np.float64)[self.rows[self.token_turns], self.positions])

    def at_turns(self, matrix: Any) -> FloatArray:
        """Return the entries of a matrix (N, T) at the first token of each turn, float64 (n,)."""
        return np.asarray(np.asarray(matrix, dtype=np.float64)[self.rows, self.starts])

    def spread(self, per_turn: Any) -> FloatArray:
        """Return float64 (N, T) with the value of each turn on its response tokens."""
        matrix = np.zeros(self.mask.shape)
        matrix[self.rows[self.token_turns], self.positions] = np.asarray(per_turn)[self.token_turns]
        return matrix

    def split(self, per_turn: Any) -> list[Any]:
        """Return one part per episode."""
        ends = np.searchsorted(self.rows, np.arange(self.episodes + 1)).tolist()
        return [per_turn[first:last] for first, last in pairwise(ends)]


def random_batch(
    seed: int,
    sizes: Sequence[int],
    *,
    gamma: float,
    turns: int = 4,
    scale: float = 1.0,
    shuffled: bool = True,
) -> Batch:
    """Return a random batch. Rewards and values are multiples of ``scale / 16``.

    Args:
        seed: Random seed.
        sizes: Sizes of the groups.
        gamma: Discount.
        turns: Largest number of turns.
        scale: Factor of all rewards and values.
        shuffled: Whether groups are interleaved. Otherwise the episodes of a group are adjacent.
    """
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    if shuffled:
        groups = random.permutation(groups)
    per_row = random.integers(1, turns + 1, len(groups))
    rows = np.repeat(np.arange(len(groups)), per_row)
    count = len(rows)
    components = scale * random.integers(-16, 17, (count, 2)) / 16
    gaps = random.integers(1, 4, count)
    gaps[np.cumsum(per_row) - per_row] = 0
    batch = Batch(
        components.sum(1), rows, random.integers(1, 6, count), gaps, groups, gamma, 0.9 if gamma < 1 else 1.0,
        baselines=scale * random.integers(-16, 17, len(groups)) / 16, components=components,
        keys=[f"state {key}" for key in random.integers(0, 3, count)],
    )  # fmt: skip
    values = scale * random.integers(-16, 17, batch.mask.shape) / 16
    last = batch.mask.shape[1] - 1 - batch.mask[:, ::-1].argmax(1)
    return replace(batch, values=values * (np.arange(batch.mask.shape[1]) <= last[:, None]))


def ours(name: str, batch: Batch, changes: Changes) -> FloatArray:
    """Return the advantages of gem_core's estimator at the response tokens, float64 (K,).

    Args:
        name: Registered name.
        batch: The batch.
        changes: See `entries.TEXTS`. None of them gives the estimator as documented.
    """
    rewards = batch.rewards
    if changes.get("rewards") == "last turn":
        last = np.flatnonzero(np.append(np.diff(batch.rows), 1))
        rewards = np.zeros(len(rewards))
        rewards[last] = batch.scores
    batch = replace(batch, rewards=rewards)
    if changes.get("groups") == "batch":
        batch = replace(batch, groups=np.zeros_like(batch.groups))
    options = {key: changes[key] for key in ("ddof", "eps") if key in changes}
    if name == "gigpo":
        return _gigpo(batch, options, changes)[batch.token_turns]
    normalizes = name in BASES and ("step" in changes or "alone" in changes or "root_eps" in changes)
    base = BASES[name] if normalizes else name
    result = _on_steps(base, batch, changes.get("step", "turn"), {} if normalizes else options)
    if changes.get("alone") == "kept":
        alone = np.bincount(batch.groups)[batch.groups] == 1
        kept = batch.scores / (1 + options.get("eps", 1e-8) if name == "grpo" else 1)
        result = np.where(alone[batch.rows[batch.token_turns]], kept[batch.rows[batch.token_turns]], result)
    if normalizes:
        result = _over_tokens(result, root_eps=changes.get("root_eps"), **options)
    if "whiten" in changes:
        result = _over_tokens(result, **dict(changes["whiten"]))
    if "scores_std" in changes:
        result = result / (batch.scores.std(ddof=1) + changes["scores_std"])
    if "whiten_episodes" in changes:
        episode_means = result[np.searchsorted(batch.rows[batch.token_turns], np.arange(batch.episodes))]
        result = (result - episode_means.mean()) / (episode_means.std(ddof=1) + changes["whiten_episodes"])
    if "factor" in changes:
        result = result * batch.episodes / max(1, np.count_nonzero(batch.scores))
    return result


def _on_steps(name: str, batch: Batch, step: str, options: Mapping[str, Any]) -> FloatArray:
    """Return advantages at the response tokens, where the estimator sees turns, tokens, or positions."""
    if step == "turn":
        rows, rewards, lengths = batch.rows, batch.rewards, batch.lengths
        values, tokens = batch.at_turns(batch.values) if batch.values.size else None, batch.token_turns
    else:
        mask = batch.mask
        if step == "token":
            steps = mask
        else:
            last = mask.shape[1] - 1 - mask[:, ::-1].argmax(1)
            steps = np.arange(mask.shape[1]) <= last[:, None]
        rows, columns = np.nonzero(steps)
        rewards, lengths = batch.token_rewards[rows, columns], np.ones(len(rows), dtype=np.int64)
        critic = batch.values * mask if step == "position without values" else batch.values
        values = critic[rows, columns] if batch.values.size else None
        tokens = np.flatnonzero(mask[rows, columns])
    estimator = get_estimator(name)
    view = replace(batch, rows=rows)
    arguments = {
        "group_ids": lambda: batch.groups.tolist(),
        "lengths": lambda: view.split(lengths),
        "values": lambda: view.split(values),
        "baselines": lambda: batch.baselines.tolist(),
        "reward_components": lambda: batch.split(batch.components),
    }
    chosen = {need: arguments[need]() for need in estimator.needs}
    if name == "gae":
        chosen["lam"] = batch.lam
    parts = estimator(view.split(rewards), gamma=batch.gamma, **chosen, **options)
    return np.asarray(np.concatenate(parts)[tokens])


def _over_tokens(
    values: FloatArray, *, ddof: int = 0, eps: float = 1e-8, root_eps: float | None = None
) -> FloatArray:
    """Normalize one value per response token over the tokens, by our REINFORCE++.

    Args:
        values: float64 (K,).
        ddof: Of the standard deviation.
        eps: Constant added to the standard deviation.
        root_eps: Constant added to the variance instead; None for none.
    """
    stats: list[ReturnStats] = []

    def keep(own: ReturnStats) -> ReturnStats:
        stats.append(own)
        return own

    (result,) = get_estimator("reinforce_plus_plus")(
        [values], lengths=[np.ones(len(values))], gamma=0.0, ddof=ddof, eps=0.0 if root_eps else eps,
        min_std=0.0, stats=keep,
    )  # fmt: skip
    if not root_eps:
        return np.asarray(result)
    variance = stats[0].m2 / (stats[0].count - ddof)
    return np.asarray(result * math.sqrt(variance / (variance + root_eps)))


def _gigpo(batch: Batch, options: Mapping[str, Any], changes: Changes) -> FloatArray:
    """Return the advantages of GiGPO per turn, with the changes of its two parts."""
    gigpo, grpo = get_estimator("gigpo"), get_estimator("grpo")
    rewards, keys = batch.split(batch.rewards), batch.split(batch.keys)
    groups = batch.groups.tolist()
    without = {**options, "gamma": batch.gamma}
    episodes = np.concatenate(gigpo(rewards, group_ids=groups, state_keys=keys, step_weight=0.0, **without))
    compared = [0] * batch.episodes if changes.get("states") == "batch" else groups
    both = gigpo(rewards, group_ids=compared, state_keys=keys, **without)
    steps = np.concatenate(both) - np.concatenate(
        gigpo(rewards, group_ids=compared, state_keys=keys, step_weight=0.0, **without)
    )
    if changes.get("episodes") == "per turn":
        group_ids = batch.groups[batch.rows].tolist()
        per_turn = grpo([[score] for score in batch.scores[batch.rows]], group_ids=group_ids, **options)
        episodes = np.concatenate(per_turn)
    return np.asarray(episodes + steps)
