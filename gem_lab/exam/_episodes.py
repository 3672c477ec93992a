"""Sampled and enumerated episodes of a table task, as flat arrays, one entry per turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gem_lab.exam._exact import Solution
from gem_lab.exam._task import END, FloatArray, IntArray, TableTask


@dataclass(frozen=True, eq=False)
class SampledEpisodes:
    """Consecutive episodes: N episodes with n turns in total and C reward components.

    Attributes:
        task: The task.
        policy: float64 (R, A), probabilities of the actions, as sampled from.
        lengths: int64 (N,), turns per episode.
        turns: int64 (n,), index of the turn within its episode.
        states: int64 (n,).
        actions: int64 (n,).
        outcomes: int64 (n,), index of the outcome.
        truncated: bool (N,), whether the turn limit cut the episode.
    """

    task: TableTask
    policy: FloatArray
    lengths: IntArray
    turns: IntArray
    states: IntArray
    actions: IntArray
    outcomes: IntArray
    truncated: NDArray[np.bool_]

    @property
    def rows(self) -> IntArray:
        """Row of the policy in each turn, int64 (n,)."""
        return np.asarray(self.task.rows[self.states])

    @property
    def rewards(self) -> FloatArray:
        """Reward of each turn, float64 (n,)."""
        return self.task.reward[self.states, self.actions, self.outcomes]

    @property
    def components(self) -> FloatArray:
        """Components of the reward of each turn, float64 (n, C)."""
        return self.task.rewards[self.states, self.actions, self.outcomes]

    @property
    def tokens(self) -> FloatArray:
        """Response tokens of each turn, float64 (n,)."""
        return self.task.tokens[self.states, self.actions]

    @property
    def episode_of(self) -> IntArray:
        """Index of the episode of each turn, int64 (n,)."""
        index: IntArray = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return index

    @property
    def first_states(self) -> IntArray:
        """First state of each episode, int64 (N,)."""
        states: IntArray = self.states[np.cumsum(self.lengths) - self.lengths]
        return states

    def values(self, solution: Solution) -> FloatArray:
        """Return the exact value of the state of each turn, float64 (n,)."""
        return solution.values[self.turns, self.states]

    def advantages(self, solution: Solution) -> FloatArray:
        """Return the exact advantage of each action, float64 (n,)."""
        return solution.advantages[self.turns, self.states, self.actions]

    def returns(self, gamma: float = 1.0) -> FloatArray:
        """Return the return of each turn, float64 (n,)."""
        return self.suffix_sums(self.rewards, gamma)

    def suffix_sums(self, values: FloatArray, factor: float) -> FloatArray:
        """Return ``s_t = x_t + factor * s_(t+1)`` within each episode."""
        longest = int(self.lengths.max())
        padded = np.zeros((len(self.lengths), longest + 1))
        padded[self.episode_of, self.turns] = values
        for turn in reversed(range(longest)):
            padded[:, turn] += factor * padded[:, turn + 1]
        return padded[self.episode_of, self.turns]

    def batches(self, size: int) -> Iterator[tuple[slice, slice]]:
        """Yield the episodes and the turns of each batch of `size` episodes."""
        ends = np.append(0, np.cumsum(self.lengths))
        for first in range(0, len(self.lengths), size):
            yield slice(first, first + size), slice(int(ends[first]), int(ends[first + size]))


def draw_starts(task: TableTask, groups: int, group_size: int, random: np.random.Generator) -> IntArray:
    """Draw the first states: one for each group, repeated for its episodes."""
    return np.repeat(random.choice(len(task.start), size=groups, p=task.start), group_size)


def sample(
    task: TableTask, policy: FloatArray, starts: IntArray, random: np.random.Generator
) -> SampledEpisodes:
    """Play one episode from each first state.

    Args:
        task: The task.
        policy: float64 (R, A), probabilities of the actions in each row.
        starts: int64 (N,), first state of each episode.
        random: Source of all randomness.
    """
    count = len(starts)
    shape = (count, task.limit)
    states, actions, outcomes = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    lengths = np.zeros(count, dtype=np.int64)
    choices, branches = _cumulative(policy), _cumulative(task.probability)
    active, state = np.arange(count), np.asarray(starts, dtype=np.int64)
    for turn in range(task.limit):
        uniform = random.random((2, len(active)))
        action = _pick(choices[task.rows[state]], uniform[0])
        outcome = _pick(branches[state, action], uniform[1])
        states[active, turn], actions[active, turn], outcomes[active, turn] = state, action, outcome
        lengths[active] += 1
        state = task.next_state[state, action, outcome]
        goes_on = state != END
        active, state = active[goes_on], state[goes_on]
        if not len(active):
            break
    truncated = np.zeros(count, dtype=bool)
    truncated[active] = True
    played = np.arange(task.limit) < lengths[:, None]
    turns = np.nonzero(played)[1]
    return SampledEpisodes(
        task, policy, lengths, turns, states[played], actions[played], outcomes[played], truncated
    )


def greedy(policy: FloatArray) -> FloatArray:
    """Return the policy that always takes the most probable action."""
    best = np.zeros_like(policy)
    best[np.arange(len(policy)), policy.argmax(1)] = 1.0
    return best


@dataclass(frozen=True)
class EpisodePath:
    """One possible episode: its turns as (state, action, outcome), and its probability given the start."""

    steps: tuple[tuple[int, int, int], ...]
    probability: float
    truncated: bool


def paths_from(
    task: TableTask, policy: FloatArray, start: int, *, most: int = 200
) -> list[EpisodePath] | None:
    """Enumerate the episodes from a first state; None if there are more than `most`."""
    paths: list[EpisodePath] = []
    open_paths: list[tuple[int, tuple[tuple[int, int, int], ...], float]] = [(start, (), 1.0)]
    while open_paths:
        state, steps, probability = open_paths.pop()
        for action in np.flatnonzero(policy[task.rows[state]]).tolist():
            for outcome in np.flatnonzero(task.probability[state, action]).tolist():
                p = probability * policy[task.rows[state], action] * task.probability[state, action, outcome]
                taken = (*steps, (state, action, outcome))
                then = int(task.next_state[state, action, outcome])
                if then == END or len(taken) == task.limit:
                    paths.append(EpisodePath(taken, float(p), then != END))
                else:
                    open_paths.append((then, taken, float(p)))
        if len(paths) + len(open_paths) > most:
            return None
    return paths


def join_paths(task: TableTask, policy: FloatArray, paths: list[EpisodePath]) -> SampledEpisodes:
    """Return the episodes of the paths, in order."""
    steps = np.array([step for path in paths for step in path.steps], dtype=np.int64)
    lengths = np.array([len(path.steps) for path in paths])
    turns = np.concatenate([np.arange(length) for length in lengths])
    return SampledEpisodes(
        task, policy, lengths, turns, steps[:, 0], steps[:, 1], steps[:, 2],
        np.array([path.truncated for path in paths]),
    )  # fmt: skip


def _cumulative(probabilities: FloatArray) -> FloatArray:
    sums = np.cumsum(probabilities, axis=-1)
    last = sums[..., -1:]
    return np.asarray(sums / np.where(last > 0, last, 1.0))


def _pick(cumulative: FloatArray, uniform: FloatArray) -> IntArray:
    """Return the first index whose cumulative probability exceeds the uniform number."""
    return np.asarray((cumulative <= uniform[:, None]).sum(1))
