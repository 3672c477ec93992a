"""The turns of a batch as flat arrays, on which every estimator computes.

`as_turns` flattens lists of episodes. `gem_core.advantages._turns.TurnLayout` does the same for tensors of
(rows, tokens), so each estimator is written only once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gem_core.advantages._inputs import (
    IDS,
    PER_EPISODE,
    checked_advantages,
    describe,
    entries,
    episode_arrays,
    flags,
    number_keys,
    plain_id,
    real,
)
from gem_core.advantages._stats import FloatArray, ReturnStats, inverse_std
from gem_core.advantages._threads import Threads
from gem_core.errors import ConfigError, NonFiniteReward

IntArray: TypeAlias = NDArray[np.int64]
StatsChoice: TypeAlias = ReturnStats | Callable[[ReturnStats], ReturnStats] | None
"""Statistics to normalize by; or a function of this batch's statistics, such as a merge over ranks; or None
for this batch's statistics."""


class Turns:
    """The turns of all episodes, one after another.

    Arrays "per turn" have one entry for each turn of each kept episode, in order. Arrays "per played episode"
    have one entry for each kept episode that has turns.

    Args:
        rewards: float64 (turns,), the reward of each turn.
        rows: int64 (turns,), the index of the episode of each turn, in ascending order.
        episodes: Number of episodes, including those without turns.
        dropped: Number of turns of each episode that is left out, by its index.

    Attributes:
        rewards: float64 (turns,).
        rows: int64 (turns,).
        columns: int64 (turns,), the index of each turn within its episode.
        index: int64 (turns,), the index of the played episode of each turn.
        starts: int64 (played episodes,), the position of the first turn of each played episode.
        episodes: Number of episodes, including those without turns.
        threads: The threads of the episodes that have side threads, by the index of the played episode.

    Raises:
        NonFiniteReward: A reward is NaN or infinite; the message names the episode and the turn.
    """

    noun = "episode"
    """Word for an episode in messages."""

    def __init__(
        self, rewards: FloatArray, rows: IntArray, episodes: int, dropped: dict[int, int] | None = None
    ) -> None:
        begins = np.diff(rows, prepend=-1) != 0
        self.rewards = rewards
        self.rows = rows
        self.starts: IntArray = np.flatnonzero(begins)
        self.index: IntArray = np.cumsum(begins) - 1
        self.columns: IntArray = np.arange(len(rows)) - self.starts[self.index]
        self.episodes = episodes
        self.threads: dict[int, Threads] = {}
        self._dropped = dropped or {}
        self._returns: dict[float, tuple[FloatArray, FloatArray]] = {}
        if not (finite := np.isfinite(rewards)).all():
            turn = int(finite.argmin())
            raise NonFiniteReward(
                f"{self.noun} {rows[turn]}, turn {self.columns[turn]}: reward {rewards[turn]} is not finite"
            )

    def __len__(self) -> int:
        return len(self.rows)

    def set_threads(self, threads: Sequence[Threads | None]) -> None:
        """Set the threads of the episodes.

        Args:
            threads: One entry per episode; None for an episode that has the main thread only.

        Raises:
            ConfigError: The number of entries, or of the turns of an entry, does not match the rewards.
        """
        sizes = np.bincount(self.index, minlength=len(self.starts)).tolist()
        for number, found in enumerate(self.per_episode("threads", threads)):
            if found is not None and found.links:
                if len(found.of) != sizes[number]:
                    raise ConfigError(
                        f"threads: {self.noun} {self.rows[self.starts[number]]} has threads of "
                        f"{len(found.of)} turns, but {sizes[number]} turns"
                    )
                self.threads[number] = found

    def require_main_thread(self, estimator: str, reason: str) -> None:
        """Reject episodes with side threads.

        Args:
            estimator: Name of the estimator.
            reason: Why it is not defined for them.

        Raises:
            ConfigError: An episode has a side thread.
        """
        if self.threads:
            row = self.rows[self.starts[min(self.threads)]]
            raise ConfigError(
                f"{estimator}: {self.noun} {row} has side threads, but {reason}; use an estimator of returns "
                "or of episodes, such as rebn, rloo, or grpo"
            )

    # -- arguments of estimators --------------------------------------------------------------

    def per_turn(self, name: str, data: Any) -> FloatArray:
        """Return an argument with one number per turn, flat.

        Args:
            name: Name of the argument, for messages.
            data: One sequence of floats per episode.

        Raises:
            ConfigError: The shape does not match the rewards, or a number is not finite.
        """
        numbers = self._join(name, episode_arrays(name, data), np.zeros(0))
        return self.check_finite(name, numbers)

    def components(self, name: str, data: Any) -> FloatArray:
        """Return an argument with several numbers per turn as an array of shape (turns, numbers).

        Args:
            name: Name of the argument, for messages.
            data: One array of shape (turns, numbers) per episode.

        Raises:
            ConfigError: The shapes do not match, or a number is not finite.
        """
        arrays = [np.asarray(array, dtype=np.float64) for array in data]
        widths = {array.shape[1] if array.ndim == 2 else -1 for array in arrays if array.size}
        if len(widths) > 1 or -1 in widths:
            raise ConfigError(f"{name}: expected one array of shape (turns, components) per {self.noun}")
        return self.check_finite(name, self._join(name, arrays, np.zeros((0, 1))))

    def turn_keys(self, name: str, data: Any) -> list[Hashable]:
        """Return the key of each turn.

        Args:
            name: Name of the argument, for messages.
            data: One sequence of keys per episode, one key per turn; see `inputs.plain_id`.

        Raises:
            ConfigError: The shape does not match the rewards, or a key cannot be compared by value.
        """
        sizes = self._sizes()
        keys: list[Hashable] = []
        for row, row_values in enumerate(entries(name, data, self.episodes, self.noun)):
            place = f"{self.noun} {row}"
            listed = entries(f"{name}: {place}", row_values, sizes[row], "turn")
            if row not in self._dropped:
                keys += [plain_id(name, key, place, turn) for turn, key in enumerate(listed)]
        return keys

    def keys_per_turn(self, name: str, data: Any) -> IntArray:
        """Return the number of each turn's key; keys are numbered from 0 in the order of first use."""
        return number_keys(self.turn_keys(name, data))

    def lengths(self, data: Any) -> FloatArray:
        """Return the number of response tokens of each turn.

        Args:
            data: One sequence of integers per episode, one per turn.

        Raises:
            ConfigError: `data` is None, its shape does not match the rewards, or a number is not positive.
        """
        if data is None:
            raise ConfigError("lengths: missing; pass the number of response tokens of each turn")
        numbers = self.per_turn("lengths", data)
        if (numbers <= 0).any():
            raise ConfigError("lengths: expected at least one response token per turn")
        return numbers

    def per_episode(self, name: str, data: Any) -> list[Any]:
        """Return the entries of the played episodes.

        Args:
            name: Name of the argument, for messages.
            data: One entry per episode, as a sequence, an array, or a tensor.

        Raises:
            ConfigError: The number of entries differs from the number of episodes.
        """
        listed = entries(name, data, self.episodes, self.noun)
        return [listed[row] for row in self.rows[self.starts].tolist()]

    def ids(self, name: str, data: Any) -> list[Hashable]:
        """Return the ids of the played episodes; see `inputs.plain_id`.

        Raises:
            ConfigError: The number of ids differs from the number of episodes, or one cannot be compared by
                value.
        """
        rows = self.rows[self.starts].tolist()
        return [
            plain_id(name, value, f"{self.noun} {row}")
            for row, value in zip(rows, self.per_episode(name, data), strict=True)
        ]

    def keys(self, name: str, data: Any) -> IntArray:
        """Return the number of each played episode's id; ids are numbered from 0 in order of first use."""
        return number_keys(self.ids(name, data))

    def weights(self, weight: str) -> FloatArray | None:
        """Return the weight of each turn in statistics: None for 1 each, or 1 / (turns of its episode)."""
        if weight == "turn":
            return None
        return np.asarray(1.0 / np.bincount(self.index)[self.index])

    def check_finite(self, name: str, numbers: FloatArray) -> FloatArray:
        """Return `numbers` (per turn), or raise a ConfigError if one is NaN or infinite."""
        if not (finite := np.isfinite(numbers)).all():
            turn = int(np.argmin(finite.reshape(len(self), -1).all(1)))
            raise ConfigError(
                f"{name}: not finite in {self.noun} {self.rows[turn]}, turn {self.columns[turn]}"
            )
        return numbers

    def _join(self, name: str, arrays: Sequence[FloatArray], empty: FloatArray) -> FloatArray:
        self._check_sizes(name, [len(array) for array in arrays])
        kept = [array for row, array in enumerate(arrays) if row not in self._dropped and len(array)]
        return np.concatenate(kept) if kept else empty

    def _check_sizes(self, name: str, sizes: Sequence[int]) -> None:
        turn_counts = self._sizes()
        if len(sizes) != len(turn_counts):
            raise ConfigError(f"{name}: {len(sizes)} entries for {self.episodes} {self.noun}s")
        for row, (size, turns) in enumerate(zip(sizes, turn_counts, strict=True)):
            if size != turns:
                raise ConfigError(f"{name}: {self.noun} {row} has {size} entries for {turns} turns")

    def _sizes(self) -> list[int]:
        sizes = np.bincount(self.rows, minlength=self.episodes)
        sizes[list(self._dropped)] = list(self._dropped.values())
        counts: list[int] = sizes.tolist()
        return counts

    def call(
        self, estimator: Callable[..., Sequence[ArrayLike]], arguments: Mapping[str, Any]
    ) -> list[FloatArray]:
        """Call an estimator that takes lists, with the played episodes.

        Args:
            estimator: Takes a list of turn rewards per episode and `arguments`.
            arguments: Arguments as this class accepts them: entries for all episodes.

        Returns:
            The advantages of each played episode.

        Raises:
            ConfigError: An argument does not match the rewards, or the result is not one number per turn.
        """
        name = getattr(estimator, "__name__", type(estimator).__name__)
        self.require_main_thread(name, "it takes lists of rewards, which have no threads")
        per_turn: dict[str, Callable[[str, Any], NDArray[Any]]] = {
            "values": self.per_turn,
            "reward_components": self.components,
            "state_keys": self.keys_per_turn,
        }
        given = dict(arguments)
        for argument, value in arguments.items():
            if argument in IDS and value is not None:
                given[argument] = self.ids(argument, value)
            elif argument in PER_EPISODE and value is not None:
                given[argument] = self.per_episode(argument, value)
            elif argument in per_turn:
                given[argument] = np.split(per_turn[argument](argument, value), self.starts[1:])
        if "lengths" in inspect.signature(estimator).parameters:
            given["lengths"] = np.split(self.lengths(arguments.get("lengths")), self.starts[1:])
        # A copy, because the function may change what it gets.
        rewards = np.split(self.rewards.copy(), self.starts[1:]) if len(self) else []
        result = estimator(rewards, **given) if rewards else []
        return checked_advantages(name, result, [len(episode) for episode in rewards])

    # -- computations -------------------------------------------------------------------------

    def returns(self, gamma: float) -> FloatArray:
        """Return ``G_t = r_t + gamma * G_(t+1)`` of each turn, with 0 after the last turn.

        In an episode with side threads, the return is that of `gem_core.advantages._threads`.

        Raises:
            ConfigError: `gamma` is not in [0, 1].
            NonFiniteReward: A return overflows.
        """
        return self._returns_and_scores(gamma)[0]

    def scores(self, gamma: float) -> FloatArray:
        """Return ``G_0`` of each played episode, in which every reward of its threads counts once."""
        return self._returns_and_scores(gamma)[1]

    def _returns_and_scores(self, gamma: float) -> tuple[FloatArray, FloatArray]:
        gamma = check_fraction("gamma", gamma)
        if gamma not in self._returns:
            self._returns[gamma] = self.returns_of(self.rewards, gamma)
        return self._returns[gamma]

    def returns_of(self, rewards: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray]:
        """Return the returns of turns and the scores of played episodes, of other rewards than `rewards`.

        Args:
            rewards: float64 (turns,), such as a component of the rewards.
            gamma: Discount per turn, from 0 to 1.

        Raises:
            NonFiniteReward: A return overflows.
        """
        sums = self._suffix_sums(rewards, gamma)
        scores = sums[self.starts]
        for number, threads in self.threads.items():
            turns = slice(self.starts[number], self.starts[number] + len(threads.of))
            with np.errstate(over="ignore", invalid="ignore"):
                sums[turns], scores[number] = threads.returns(rewards[turns], gamma)
        self._check_returns(sums)
        return sums, scores

    def totals(self, values: FloatArray) -> FloatArray:
        """Return the sum over the turns of each played episode."""
        return np.asarray(np.bincount(self.index, values, minlength=len(self.starts)), dtype=np.float64)

    def suffix_sums(self, values: FloatArray, factor: float) -> FloatArray:
        """Return ``s_t = x_t + factor * s_(t+1)`` within each episode.

        Raises:
            ConfigError: An episode has side threads, which `returns_of` follows.
            NonFiniteReward: A sum overflows.
        """
        self.require_main_thread("suffix_sums", "it adds up the turns in their order")
        return self._suffix_sums(values, factor)

    def _suffix_sums(self, values: FloatArray, factor: float) -> FloatArray:
        """Return the sums in log2(turns) passes over all turns."""
        sums = np.array(values, dtype=np.float64)
        step, longest = 1, int(self.columns.max(initial=-1)) + 1
        with np.errstate(over="ignore", invalid="ignore"):
            while step < longest:  # sums[t] covers the values of turns t .. t + step - 1
                same_row = self.rows[step:] == self.rows[:-step]
                sums[:-step] += np.where(same_row, factor * sums[step:], 0.0)
                step, factor = 2 * step, factor * factor
        self._check_returns(sums)
        return sums

    def _check_returns(self, sums: FloatArray) -> None:
        if not (finite := np.isfinite(sums)).all():
            raise NonFiniteReward(
                f"{self.noun} {self.rows[int(finite.argmin())]}: the return overflows float64; "
                "rescale the rewards"
            )

    def following(self, values: FloatArray, last: FloatArray) -> FloatArray:
        """Return the value of the next turn; after the last turn, the played episode's entry in `last`."""
        shifted: FloatArray = last[self.index]
        same_row = self.rows[1:] == self.rows[:-1]
        shifted[:-1][same_row] = values[1:][same_row]
        return shifted

    def split(self, values: FloatArray) -> list[FloatArray]:
        """Return one array per episode; 0 on the turns of episodes that are left out."""
        ends = np.searchsorted(self.rows, np.arange(self.episodes + 1)).tolist()
        parts = [values[first:end] for first, end in pairwise(ends)]
        for row, turns in self._dropped.items():
            parts[row] = np.zeros(turns)
        return parts


TurnRewards: TypeAlias = Sequence[ArrayLike] | Turns
"""One sequence of floats per episode, one reward per turn; or the same already flat."""


def as_turns(turn_rewards: TurnRewards, truncated: Sequence[bool] | None = None) -> Turns:
    """Flatten the turn rewards of a batch.

    Args:
        turn_rewards: One sequence of floats per episode.
        truncated: One bool per episode; True leaves the episode out. None keeps all episodes.

    Raises:
        ConfigError: `turn_rewards` is not a list of reward sequences, or `truncated` has a different length.
        NonFiniteReward: A reward is NaN or infinite.
    """
    if isinstance(turn_rewards, Turns):
        if truncated is not None:
            raise ConfigError("truncated: expected None with flat turns")
        return turn_rewards
    arrays = episode_arrays("turn_rewards", turn_rewards)
    dropped: dict[int, int] = {}
    if truncated is not None:
        left_out = flags("truncated", truncated, len(arrays))
        dropped = {row: len(arrays[row]) for row, masked in enumerate(left_out) if masked}
    kept = [np.zeros(0) if row in dropped else array for row, array in enumerate(arrays)]
    sizes = [len(array) for array in kept]
    rewards = np.concatenate(kept) if kept else np.zeros(0)
    return Turns(rewards, np.repeat(np.arange(len(arrays)), sizes), len(arrays), dropped)


def with_threads(
    turn_rewards: TurnRewards,
    threads: Sequence[Threads | None],
    truncated: Sequence[bool] | None = None,
) -> Turns:
    """Return the turn rewards of episodes with side threads, as the first argument of an estimator.

        rloo(with_threads(rewards, threads), group_ids=groups)

    Args:
        turn_rewards: One sequence of floats per episode, in the order in which its turns were sampled.
        threads: The threads of each episode; None for an episode that has the main thread only.
        truncated: The argument of that name, which the estimator then does not take.

    Raises:
        ConfigError: The numbers of episodes or turns differ; or as in `as_turns`.
        NonFiniteReward: A reward is NaN or infinite.
    """
    turns = as_turns(turn_rewards, truncated)
    turns.set_threads(threads)
    return turns


def deviations(
    values: FloatArray, groups: IntArray, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the total weight and the mean of every group, and each value's deviation from its group's mean.

    Args:
        values: float64 (values,).
        groups: (values,), the index of each value's group.
        weights: (values,), positive. None gives all values the weight 1.
    """
    count = np.bincount(groups, weights).astype(np.float64)
    weighted = values if weights is None else values * weights
    mean = np.bincount(groups, weighted) / np.where(count > 0, count, 1.0)
    return count, mean, values - mean[groups]


def standardized(
    values: FloatArray,
    groups: IntArray,
    weights: FloatArray | None = None,
    *,
    ddof: int,
    eps: float,
    min_std: float,
) -> FloatArray:
    """Return ``(x - mean) / (std + eps)`` with mean and std of each value's group; 0 where these are equal.

    Raises:
        ConfigError: `ddof`, `eps`, or `min_std` is out of range.
        NonFiniteReward: The squared deviations overflow.
    """
    count, mean, gaps = deviations(values, groups, weights)
    with np.errstate(over="ignore"):
        squares = np.square(gaps) if weights is None else np.square(gaps) * weights
    m2 = np.bincount(groups, squares, minlength=len(count))
    return np.asarray(gaps * inverse_std(count, mean, m2, ddof=ddof, eps=eps, min_std=min_std)[groups])


def normalized(
    values: FloatArray,
    weights: FloatArray | None,
    stats: StatsChoice,
    *,
    ddof: int,
    eps: float,
    min_std: float,
) -> FloatArray:
    """Return ``(x - mean) / (std + eps)`` with one mean and std; 0 if the values behind them are equal.

    Args:
        values: float64 (values,).
        weights: (values,), positive. None gives all values the weight 1.
        stats: See `StatsChoice`.
        ddof: 0 for the population standard deviation, 1 for the sample standard deviation.
        eps: Constant added to the standard deviation.
        min_std: Values count as equal if ``std <= min_std * max(1, |mean|)``.

    Raises:
        ConfigError: `ddof`, `eps`, or `min_std` is out of range, or `stats` is none of its choices.
        NonFiniteReward: The squared deviations overflow.
    """
    if not isinstance(stats, ReturnStats):
        stats = chosen(stats, ReturnStats.from_returns(values, weights))
    scale = stats.scale(ddof=ddof, eps=eps, min_std=min_std)
    return (values - stats.mean) * scale if scale else np.zeros_like(values)


def check_fraction(name: str, value: float) -> float:
    """Return `value` as a float, or raise a ConfigError unless it is a number in [0, 1]."""
    return real(name, value, 0, 1)


def check_numbers(name: str, numbers: Sequence[Any]) -> FloatArray:
    """Return a sequence of finite numbers as a float64 array, or raise a ConfigError."""
    try:
        array = np.asarray(numbers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} is {describe(numbers)}: expected numbers ({error})") from error
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ConfigError(f"{name}: expected a sequence of finite numbers")
    return array


def chosen(stats: StatsChoice, own: ReturnStats) -> ReturnStats:
    """Return the statistics to normalize by, where `own` are those of this batch.

    Raises:
        ConfigError: `stats` is none of its choices, or returns something else.
    """
    result = own if stats is None else stats(own) if callable(stats) else stats
    if not isinstance(result, ReturnStats):
        raise ConfigError(f"stats: expected ReturnStats, or a function that returns them, not {result!r}")
    return result
