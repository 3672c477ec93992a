"""Inputs that an estimator needs besides rewards, as far as a table task can supply them.

The names are the keyword arguments of the estimators. `INPUTS` lists them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from gem_core._registration import read_specs
from gem_core._util.checks import check_names, expected
from gem_core.advantages import Estimator, get_estimator
from gem_core.advantages._inputs import checked_advantages
from gem_core.errors import ConfigError
from gem_lab.exam._episodes import SampledEpisodes, greedy, sample
from gem_lab.exam._exact import Solution
from gem_lab.exam._task import FloatArray, IntArray

Arguments = dict[str, Any]


class RewardsRejected(ConfigError):
    """An estimator does not accept the rewards of a task, such as negative ones."""


@dataclass(frozen=True)
class Candidate:
    """An estimator that takes the exam.

    Attributes:
        name: Name in the results.
        function: Takes a list with one float64 array of turn rewards per episode and the inputs as keyword
            arguments; returns one array of advantages per episode.
        needs: Names of the inputs it needs, from `INPUTS`.
        takes_gamma: Whether it has an argument `gamma`.
    """

    name: str
    function: Callable[..., Sequence[Any]]
    needs: tuple[str, ...] = ()
    takes_gamma: bool = True

    @classmethod
    def of(cls, estimator: str | Estimator[..., Any] | Callable[..., Any]) -> Candidate:
        """Return the candidate for a registered name, an `Estimator`, or a function.

        A name may have options: ``"rebn(statistics='group')"``.

        Raises:
            ConfigError: The estimator needs something that a table task does not have.
            UnknownName: No estimator has this name.
        """
        if isinstance(estimator, str):
            return cls._registered(estimator)
        if isinstance(estimator, Estimator):
            check_names(estimator.needs, INPUTS, kind="input", owner=f"estimator {estimator.name!r}")
            return cls(estimator.name, estimator, tuple(estimator.needs))
        name = getattr(estimator, "__name__", type(estimator).__name__)
        parameters = list(inspect.signature(estimator).parameters.values())[1:]
        needs = [
            p.name
            for p in parameters
            if p.default is p.empty
            and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
            and p.name != "gamma"
        ]
        check_names(needs, INPUTS, kind="input", owner=f"estimator {name!r}")
        return cls(name, estimator, tuple(needs), any(p.name == "gamma" for p in parameters))

    @classmethod
    def _registered(cls, text: str) -> Candidate:
        """Return the candidate for a config string such as ``"rebn(statistics='group')"``."""
        specs = read_specs(text, what="estimator", example="rebn(statistics='group')")
        if len(specs) != 1:
            raise expected("estimator", text, "one name, such as 'rebn' or \"rebn(statistics='group')\"")
        estimator, options = get_estimator(specs[0].name), specs[0].kwargs
        estimator.check_options(options)
        needs = estimator.needs_with(options)
        check_names(needs, INPUTS, kind="input", owner=f"estimator {text!r}")
        return cls(text, partial(estimator, **options) if options else estimator, tuple(needs))

    def advantages(self, batch: ExamBatch, gamma: float) -> FloatArray:
        """Return the advantages of all turns of a batch, float64 (n,).

        Raises:
            ConfigError: The estimator does not return one finite number per turn.
            RewardsRejected: The estimator does not accept the rewards.
        """
        arguments = {name: INPUTS[name](batch) for name in self.needs}
        if self.takes_gamma:
            arguments["gamma"] = gamma
        try:
            result = self.function(batch.per_turn(batch.rewards), **arguments)
        except ConfigError as error:
            raise RewardsRejected(str(error)) from error
        return np.concatenate(checked_advantages(self.name, result, batch.lengths.tolist()))


@dataclass(frozen=True, eq=False)
class ExamBatch:
    """One batch, as views of the arrays of `Chunk`.

    Attributes:
        chunk: All batches.
        episodes: The episodes of this batch.
        turns: The turns of this batch.
    """

    chunk: Chunk
    episodes: slice
    turns: slice

    @property
    def lengths(self) -> IntArray:
        """Turns per episode."""
        return self.chunk.played.lengths[self.episodes]

    @property
    def rewards(self) -> FloatArray:
        """Reward of every turn."""
        return self.chunk.rewards[self.turns]

    def per_turn(self, values: Any) -> list[Any]:
        """Split the values of all turns of the batch into one sequence per episode.

        The sequences are copies, because an estimator may change what it gets, and others get the same.
        """
        ends = np.cumsum(self.lengths).tolist()
        return [values[first:last].copy() for first, last in zip([0, *ends[:-1]], ends, strict=True)]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive batches, with the inputs of their estimators.

    Attributes:
        played: The episodes.
        batch_size: Episodes per batch.
        group_size: Episodes per group.
        solution: Exact values, of the same discount as the estimators.
        random: Source of the greedy episodes.
    """

    played: SampledEpisodes
    batch_size: int
    group_size: int
    solution: Solution
    random: np.random.Generator

    def batches(self) -> list[ExamBatch]:
        """Return the batches in order."""
        return [ExamBatch(self, *slices) for slices in self.played.batches(self.batch_size)]

    @cached_property
    def rewards(self) -> FloatArray:
        """Reward of every turn."""
        return self.played.rewards

    @cached_property
    def components(self) -> FloatArray:
        """Reward components of every turn, float64 (n, C)."""
        return self.played.components

    @cached_property
    def values(self) -> FloatArray:
        """Exact value of the state of every turn."""
        return self.played.values(self.solution)

    @cached_property
    def env_ids(self) -> IntArray:
        """Row of the first state of every episode."""
        return self.played.task.rows[self.played.first_states]

    @cached_property
    def keys(self) -> list[int]:
        """State key of every turn."""
        keys: list[int] = self.played.task.keys[self.played.states].tolist()
        return keys

    @cached_property
    def tokens(self) -> FloatArray:
        """Response tokens of every turn."""
        return self.played.tokens

    @cached_property
    def baselines(self) -> FloatArray:
        """Return of one greedy episode from the first state of each episode."""
        task, policy = self.played.task, greedy(self.played.policy)
        episodes = sample(task, policy, self.played.first_states, self.random)
        sums = np.bincount(episodes.episode_of, episodes.rewards, len(episodes.lengths))
        return np.asarray(sums, dtype=np.float64)


def _group_ids(batch: ExamBatch) -> list[int]:
    return [index // batch.chunk.group_size for index in range(len(batch.lengths))]


def _env_ids(batch: ExamBatch) -> list[int]:
    """Return the first observation of each episode, which differs between the tasks of a mixture."""
    ids: list[int] = batch.chunk.env_ids[batch.episodes].tolist()
    return ids


INPUTS: dict[str, Callable[[ExamBatch], Any]] = {
    "group_ids": _group_ids,
    "env_ids": _env_ids,
    "values": lambda batch: batch.per_turn(batch.chunk.values[batch.turns]),
    "state_keys": lambda batch: batch.per_turn(batch.chunk.keys[batch.turns]),
    "reward_components": lambda batch: batch.per_turn(batch.chunk.components[batch.turns]),
    "agent_ids": lambda batch: [0] * len(batch.lengths),
    "lengths": lambda batch: batch.per_turn(batch.chunk.tokens[batch.turns]),
    "baselines": lambda batch: batch.chunk.baselines[batch.episodes].tolist(),
    "truncated": lambda batch: batch.chunk.played.truncated[batch.episodes].tolist(),
}
"""Functions that return an input for a batch, by the name of the estimators' argument."""
