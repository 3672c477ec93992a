"""Read, check, and run the advantage estimator that a trainer's config names."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gem_core._util.checks import check_choice, check_number
from gem_core._util.messages import unknown
from gem_core.advantages.registry import (
    NEEDS,
    SCOPES,
    TRAINER_NAMES,
    TRUNCATIONS,
    Estimator,
    Need,
    Scope,
    Truncation,
    get_estimator,
)
from gem_core.advantages.returns import returns
from gem_core.advantages.stats import FloatArray, ReturnStats
from gem_core.errors import ConfigError, NonFiniteReward
from gem_core.rollout import Episode
from gem_core.tasks import EnvChoice

if TYPE_CHECKING:
    import torch

    from gem_core.advantages.tensors import Advantages


@dataclass(frozen=True)
class EpisodeTurns:
    """The data about an episode's turns that estimators need, small enough to send between ranks.

    Attributes:
        rewards: Reward of each turn.
        lengths: Number of response tokens of each turn.
        env_id: Environment with its arguments.
        state_keys: Key of the state in which each turn began; empty if no estimator needs it.
    """

    rewards: list[float]
    lengths: list[int]
    env_id: str = ""
    state_keys: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, episode: Episode, needs: Collection[Need]) -> EpisodeTurns:
        """Return the data about an episode's turns, with no turns if the episode is not trainable.

        Args:
            episode: The episode.
            needs: What the estimator needs; see `EstimatorChoice.needs`.
        """
        turns = episode.turns if episode.trainable else []
        return cls(
            [turn.reward for turn in turns],
            [len(turn.response_ids) for turn in turns],
            EnvChoice(episode.env_id, episode.env_kwargs).label,
            episode.state_keys() if turns and "state_keys" in needs else [],
        )


@dataclass(frozen=True)
class EstimatorChoice:
    """An estimator with its options.

    Attributes:
        name: Name in the trainer's config.
        estimator: The estimator.
        gamma: Discount per turn.
        options: Keyword arguments besides gamma.
        scope: Turns over which the statistics are computed; "trained" for an estimator without statistics.
        truncation: "keep" to treat truncated episodes as if they had terminated, "mask" to leave them out of
            statistics, baselines, and the loss.
    """

    name: str
    estimator: Estimator
    gamma: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    scope: Scope = "trained"
    truncation: Truncation = "keep"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Inputs that the estimator needs with these options, besides rewards and mask."""
        return self.estimator.needs_with(self.options)

    @property
    def needs_groups(self) -> bool:
        """Whether the estimator compares the episodes of a task."""
        return "group_ids" in self.needs

    @property
    def summary(self) -> str:
        """Name, options, and the turns over which the statistics are computed, for a plan."""
        options = {"gamma": self.gamma, **self.options} | (
            {"truncation": "mask"} if self.truncation == "mask" else {}
        )
        text = f"{self.name}({', '.join(f'{name}={value}' for name, value in options.items())})"
        if self.estimator.collected_stats:
            turns = (
                "all turns collected for a step"
                if self.scope == "collected"
                else "the turns that are trained on"
            )
            return f"{text}, statistics of {turns}"
        if self.needs_groups:
            return f"{text}, compares the episodes of a task"
        return text

    def check_group_size(self, option: str, size: int) -> None:
        """Reject an estimator that compares the episodes of a task if each task has only one.

        Args:
            option: Name of the trainer's option that sets the number of episodes per task.
            size: Value of the option.

        Raises:
            ConfigError: Each task has only one episode, so the estimator has nothing to compare.
        """
        if self.needs_groups and size < 2:
            raise ConfigError(
                f"{self.name} compares the episodes of a task; with {option}={size} every advantage would "
                "be 0"
            )

    def check_collected(self, cause: str, remedy: str) -> None:
        """Reject statistics over all collected turns if the trainer drops some turns first.

        Args:
            cause: Why turns are dropped, such as ``"algorithm.filter_groups drops groups"``.
            remedy: Setting to use instead, such as ``"+algorithm.rebn.scope=trained"``.

        Raises:
            ConfigError: The scope is "collected".
        """
        if self.scope == "collected":
            raise ConfigError(
                f"{cause} before {self.name} sees them, so its statistics cannot cover all turns that were "
                f"collected; {remedy} uses the remaining turns"
            )

    def compute(
        self,
        token_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        *,
        turn_ids: torch.Tensor | None = None,
        episodes: Sequence[Hashable] | None = None,
        turns: Sequence[int] | None = None,
        group_ids: Sequence[Hashable] | None = None,
        truncated: Sequence[bool] | None = None,
        **arguments: Any,
    ) -> Advantages:
        """Compute the advantages of a batch of episode rows or turn rows.

        Args:
            token_rewards: (rows, tokens), any float dtype. The reward of a turn is the sum from its first
                token up to the next turn.
            response_mask: (rows, tokens), 1 on response tokens. A row of zeros is ignored.
            turn_ids: For episode rows, (rows, tokens): index of the turn in its row, -1 outside of responses.
                None treats each run of ones in the mask as a turn.
            episodes: For turn rows, the episode of each row; None for episode rows.
            turns: For turn rows, the index of each row within its episode.
            group_ids: Group of each row; used by estimators that compare the episodes of a task.
            truncated: Whether the episode of each row was truncated; used with ``truncation="mask"``.
            arguments: Further keyword arguments of the estimator, such as ``values``.

        Returns:
            Advantages and returns, each float32 (rows, tokens), and the statistics of the returns.

        Raises:
            ConfigError: Something that the estimator needs is missing, or one of the reasons in
                `gem_core.advantages.tensors`.
            NonFiniteReward: A reward is not finite; the message names the row and the turn.
        """
        arguments = {"gamma": self.gamma, **self.options, **arguments}
        if self.needs_groups:
            if group_ids is None:
                raise ConfigError(f"{self.name} compares the episodes of a task, but the rows have no groups")
            arguments["group_ids"] = group_ids
        for need in self.needs:
            if need != "lengths" and arguments.get(need) is None:
                raise ConfigError(f"{self.name} needs {need}, {NEEDS[need]}, but the rows have none")
        if self.truncation == "mask":
            if truncated is None:
                raise ConfigError("truncation='mask' needs to know which rows were truncated")
            arguments["truncated"] = truncated
        function = self.estimator.tensors()
        result: Advantages
        if episodes is None:
            result = function(token_rewards, response_mask, turn_ids=turn_ids, **arguments)
        else:
            from gem_core.advantages.turn_rows import by_episode

            assert turns is not None
            result = by_episode(
                function, token_rewards, response_mask, episodes=episodes, turns=turns, **arguments
            )
        return result

    def compute_turns(
        self, episodes: Sequence[EpisodeTurns], group_ids: Sequence[Hashable]
    ) -> tuple[list[FloatArray], ReturnStats]:
        """Compute the advantages of all turns of an update, in one process.

        A trainer that sends the turns of all ranks to each rank needs no merged statistics and no groups that
        stay on one rank: each rank computes all advantages and keeps those of its episodes.

        Args:
            episodes: The episodes of all ranks in the same order on each rank. An episode without turns, such
                as a failed one, is left out of statistics and baselines.
            group_ids: Group of each episode.

        Returns:
            The advantages of the turns of each episode, and the statistics of the returns.

        Raises:
            NonFiniteReward: A reward is not finite; the message names the episode and the turn.
        """
        numbers = [number for number, episode in enumerate(episodes) if episode.rewards]
        rewards = [episodes[number].rewards for number in numbers]
        for number in numbers:
            for turn, reward in enumerate(episodes[number].rewards):
                if not math.isfinite(reward):
                    raise NonFiniteReward(f"episode {number}, turn {turn}: reward {reward}")
        advantages: list[FloatArray] = [np.zeros(0) for _ in episodes]
        if numbers:
            inputs: dict[str, list[Any]] = {
                "group_ids": [group_ids[number] for number in numbers],
                "lengths": [episodes[number].lengths for number in numbers],
                "env_ids": [episodes[number].env_id for number in numbers],
                "state_keys": [episodes[number].state_keys for number in numbers],
            }
            needs = {name: inputs[name] for name in self.needs}
            computed = self.estimator.reference()(rewards, gamma=self.gamma, **self.options, **needs)
            for number, of_turns in zip(numbers, computed, strict=True):
                advantages[number] = of_turns
        return advantages, ReturnStats.from_returns(returns(rewards, self.gamma))


def read_estimator(
    name: str,
    options: Mapping[str, Any],
    *,
    gamma: float = 1.0,
    prefix: str = "",
    gamma_option: str = "gamma",
    option: str = "estimator",
    own_names: Collection[str] = (),
    names: Mapping[str, str] | None = TRAINER_NAMES,
    supplies: Collection[str] = ("group_ids",),
) -> EstimatorChoice:
    """Read the estimator that a config names.

    Args:
        name: Name in the trainer's config.
        options: Maps options to values, including ``scope`` for an estimator with statistics of returns, and
            ``truncation`` if the trainer supplies "truncated". None as a value selects the default.
        gamma: Discount per turn.
        prefix: Text that a user writes before the name of an option, for messages.
        gamma_option: Name that a user writes for `gamma`, for messages.
        option: Text that a user writes before `name`, for messages.
        own_names: Names of the trainer's own estimators, for messages.
        names: Maps names in the trainer's config to names of estimators. None if `name` is
            the registered name.
        supplies: What the trainer supplies: names of needs (`gem_core.advantages.registry.NEEDS`), and
            "truncated" if it knows which episodes were truncated.

    Raises:
        ConfigError: The estimator or an option is unknown, a value is out of range, or the trainer does not
            supply what the estimator needs.
        UnknownName: `names` is None, and the estimator does not exist.
    """
    if names is not None and name not in names:
        raise unknown_estimator(option, name, [*own_names, *names])
    estimator = get_estimator(name if names is None else names[name])
    chosen = {key: value for key, value in options.items() if value is not None}
    truncation: Any = "keep"
    if "truncated" in supplies:
        truncation = check_choice(f"{prefix}truncation", chosen.pop("truncation", "keep"), TRUNCATIONS)
    scope: Any = "trained"
    if estimator.collected_stats:
        # Statistics of collected returns count every turn once and are not split.
        plain = not {"statistics", "weight"} & chosen.keys() and truncation == "keep"
        scope = check_choice(
            f"{prefix}scope", chosen.pop("scope", "collected" if plain else "trained"), SCOPES
        )
        if scope == "collected" and not plain:
            raise ConfigError(
                f"{prefix}scope='collected' cannot be combined with statistics, weight, or truncation; use "
                "'trained'"
            )
    estimator.check_options(chosen, prefix=prefix)
    check_number(gamma_option, float(gamma), 0, 1)
    for need in estimator.needs_with(chosen):
        if need not in supplies:
            raise ConfigError(
                f"{name} needs {need} ({NEEDS[need]}), which this trainer does not supply; it supplies "
                f"{', '.join(supplies) or 'nothing'}"
            )
    return EstimatorChoice(name, estimator, float(gamma), chosen, scope, truncation)


def unknown_estimator(option: str, name: str, known: Sequence[str]) -> ConfigError:
    """Return the error for an estimator that neither the trainer nor gem_core has.

    Args:
        option: Text that a user writes before the name.
        name: Unknown name.
        known: All allowed names.
    """
    return ConfigError(f"{option}: {unknown('estimator', name, known)}")


class TurnLog:
    """Logs the source of the turns of a batch, once per estimator and source.

    With a wrong mask, an estimator computes wrong advantages, and nothing else would reveal it.

    Args:
        logger: Logger with a handler in the trainer's process.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: set[tuple[str, str]] = set()

    def __call__(self, name: str, stats: ReturnStats, source: str) -> None:
        """Log the number of turns.

        Args:
            name: Name of the estimator.
            stats: Statistics of the returns.
            source: Source of the turns and their rewards.
        """
        if (name, source) not in self._logged:
            self._logged.add((name, source))
            self._logger.info("%s: %d turns in this batch, taken from %s", name, int(stats.count), source)
