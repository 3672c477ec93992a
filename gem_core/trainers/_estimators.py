"""Read, check, and run the advantage estimator that a trainer's config names."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gem_core._util.checks import check_choice
from gem_core._util.messages import error_line, error_text, unknown
from gem_core.advantages._batch import with_threads
from gem_core.advantages._declaration import NEEDS, Need
from gem_core.advantages._inputs import checked_advantages, episode_arrays, real
from gem_core.advantages._registry import (
    PREFIX,
    SCOPES,
    TRUNCATIONS,
    Estimator,
    Scope,
    Supply,
    Truncation,
    get_estimator,
    names_in_trainer,
)
from gem_core.advantages._stats import FloatArray, ReturnStats
from gem_core.advantages._threads import Threads
from gem_core.errors import ConfigError, NonFiniteReward
from gem_core.rollout._estimator_inputs import EpisodeTurns, estimator_inputs

if TYPE_CHECKING:
    import torch

    from gem_core.advantages._tensors import Advantages
    from gem_core.trainers._plugin import SupportedTrainer

_TURNS = {"collected": "all turns collected for a step", "trained": "the turns that are trained on"}


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
            statistics and baselines and give them no advantage.
    """

    name: str
    estimator: Estimator[..., Any]
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
        masked = {"truncation": "mask"} if self.truncation == "mask" else {}
        options = {"gamma": self.gamma, **self.options, **masked}
        text = f"{self.name}({', '.join(f'{name}={value}' for name, value in options.items())})"
        if self.estimator.collected_stats:
            return f"{text}, statistics of {_TURNS[self.scope]}"
        return f"{text}, compares the episodes of a task" if self.needs_groups else text

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
        turns: Sequence[Sequence[int]] | None = None,
        group_ids: Sequence[Hashable] | None = None,
        played: Sequence[EpisodeTurns | None] | None = None,
        **arguments: Any,
    ) -> Advantages:
        """Compute the advantages of a batch of rows.

        Args:
            token_rewards: (rows, tokens), any float dtype. The reward of a turn is the sum from its first
                token up to the next turn.
            response_mask: (rows, tokens), 1 on response tokens. A row of zeros is ignored.
            turn_ids: (rows, tokens), index of the turn in its row, -1 outside of responses. None treats each
                run of ones in the mask as a turn.
            episodes: The episode of each row; None if every row is an episode.
            turns: The indices within their episode of the turns in each row; given together with `episodes`.
            group_ids: Group of each row; used by estimators that compare the episodes of a task.
            played: Data about the episode of each row, for estimators that need more than rewards and mask,
                and for ``truncation="mask"``; None for a row that GEM did not play.
            arguments: Further keyword arguments of the estimator, such as ``values``.

        Returns:
            Advantages and returns, each float32 (rows, tokens), and the statistics of the returns.

        Raises:
            ConfigError: Something that the estimator needs is missing, or one of the reasons in
                `gem_core.advantages._tensors`.
            NonFiniteReward: A reward is not finite; the message names the row and the turn.
        """
        arguments = {"gamma": self.gamma, **self.options, **arguments}
        if self.needs_groups:
            arguments["group_ids"] = group_ids
        if played is not None:
            arguments |= _inputs_of_rows(played, self.needs, response_mask, turn_ids, turns)
        for need in self.needs:
            if need != "lengths" and arguments.get(need) is None:
                raise ConfigError(f"{self.name} needs {need}, {NEEDS[need]}, but the rows have none")
        if self.truncation == "mask":
            if played is None:
                raise ConfigError("truncation='mask' needs to know which rows were truncated")
            kept = [row is None or not row.truncated for row in played]
            response_mask = response_mask * response_mask.new_tensor(kept)[:, None]
        if episodes is None:
            return self.estimator.tensors(token_rewards, response_mask, turn_ids, **arguments)
        from gem_core.advantages._rows import by_episode

        assert turns is not None
        return by_episode(
            self.estimator,
            token_rewards,
            response_mask,
            episodes=episodes,
            turns=turns,
            turn_ids=turn_ids,
            **arguments,
        )

    def compute_turns(
        self, episodes: Sequence[EpisodeTurns], group_ids: Sequence[Hashable], **further: Any
    ) -> tuple[list[FloatArray], ReturnStats]:
        """Compute the advantages of all turns of an update, in one process.

        A trainer that sends the turns of all ranks to each rank needs no merged statistics and no groups that
        stay on one rank: each rank computes all advantages and keeps those of its episodes.

        Args:
            episodes: The episodes of all ranks in the same order on each rank. An episode without turns, such
                as a failed one, is left out of statistics and baselines.
            group_ids: Group of each episode.
            further: Further keyword arguments of the estimator, which match the episodes that have turns and,
                with ``truncation="mask"``, were not truncated.

        Returns:
            The advantages of the turns of each episode, and the statistics of the returns that count.

        Raises:
            ConfigError: The estimator does not return one finite number per turn.
            NonFiniteReward: A reward is not finite; the message names the episode and the turn.
        """
        masked = self.truncation == "mask"
        numbers = [n for n, one in enumerate(episodes) if one.rewards and not (masked and one.truncated)]
        for number in numbers:
            for turn, reward in enumerate(episodes[number].rewards):
                if not math.isfinite(reward):
                    raise NonFiniteReward(f"episode {number}, turn {turn}: reward {reward}")
        advantages: list[FloatArray] = [np.zeros(len(one.rewards)) for one in episodes]
        stats = ReturnStats()
        if numbers:
            groups = [group_ids[number] for number in numbers]
            kept = [episodes[number] for number in numbers]
            inputs = {**estimator_inputs(kept, self.needs, groups), **further}
            for name in {"lengths", "values"} & inputs.keys():  # arrays, as from tensors
                inputs[name] = episode_arrays(name, inputs[name])
            turns = with_threads([one.rewards for one in kept], threads_of(kept))
            if turns.threads and not self.estimator.takes_turns:
                turns.require_main_thread(self.name, "it takes lists of rewards, which have no threads")
            # New arrays, because the estimator may change them.
            batch = turns if turns.threads else turns.split(turns.rewards.copy())
            computed = self.estimator(batch, gamma=self.gamma, **self.options, **inputs)
            checked = checked_advantages(self.name, computed, [len(one.rewards) for one in kept])
            for number, values in zip(numbers, checked, strict=True):
                advantages[number] = values
            stats = ReturnStats.from_returns(turns.returns(self.gamma))
        return advantages, stats


def threads_of(episodes: Sequence[EpisodeTurns]) -> list[Threads | None]:
    """Return the threads of each episode; None for one with the main thread only."""
    return [Threads(one.turn_threads, one.threads) if one.threads else None for one in episodes]


def _inputs_of_rows(
    played: Sequence[EpisodeTurns | None],
    needs: Collection[Need],
    response_mask: torch.Tensor,
    turn_ids: torch.Tensor | None,
    turns: Sequence[Sequence[int]] | None,
) -> dict[str, Any]:
    """Return inputs for the rows of a batch; see `EstimatorChoice.compute`."""
    episodes = [row or EpisodeTurns([], []) for row in played]
    # The mask determines lengths, and the trainer its groups.
    known = [need for need in needs if need not in ("lengths", "group_ids")]
    inputs: dict[Any, Any] = {**estimator_inputs(episodes, known)}
    if any(row.threads for row in episodes):
        inputs["threads"] = threads_of(episodes)
    if turns is not None:  # a row holds some turns of its episode
        for need in {"state_keys", "reward_components"} & inputs.keys():
            inputs[need] = [
                [entry[turn] for turn in indices] if entry else []
                for entry, indices in zip(inputs[need], turns, strict=True)
            ]
    if "reward_components" in inputs:
        inputs["reward_components"] = _on_first_tokens(inputs["reward_components"], response_mask, turn_ids)
    return inputs


def _on_first_tokens(
    rows: Sequence[Sequence[Sequence[float]]], response_mask: torch.Tensor, turn_ids: torch.Tensor | None
) -> torch.Tensor:
    """Return components of rewards, one list per turn of each row, as (rows, tokens, components)."""
    import torch

    from gem_core.advantages._tensors import turn_ids_from_mask

    ids = (turn_ids_from_mask(response_mask) if turn_ids is None else turn_ids).cpu()
    opens = ids >= 0
    opens[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    width = max((len(parts) for turns in rows for parts in turns), default=0)
    table = torch.zeros((*ids.shape, width), dtype=torch.float64)
    for row, turns in enumerate(rows):
        places = opens[row].nonzero()[:, 0]
        if len(places) and len(places) != len(turns):
            raise ConfigError(
                f"reward_components: row {row} has {len(places)} turns, but {len(turns)} were played"
            )
        if len(places):
            table[row, places] = torch.tensor(turns, dtype=torch.float64)
    return table.to(response_mask.device)


def read_estimator(
    name: str,
    options: Mapping[str, Any],
    *,
    gamma: float = 1.0,
    prefix: str = "",
    gamma_option: str = "gamma",
    option: str = "estimator",
    trainer: SupportedTrainer | None = None,
    supplies: Collection[Supply] | None = None,
) -> EstimatorChoice:
    """Read the estimator that a config names.

    Args:
        name: Name in the trainer's config: ``gem_NAME``, or NAME if the trainer has no estimator of that name
            (`gem_core.advantages._registry.names_in_trainer`).
        options: Maps options to values, including ``scope`` for an estimator with statistics of returns, and
            ``truncation`` if the trainer supplies "truncated". None as a value selects the default.
        gamma: Discount per turn.
        prefix: Text that a user writes before the name of an option, for messages.
        gamma_option: Name that a user writes for `gamma`, for messages.
        option: Text that a user writes before `name`, for messages.
        trainer: The trainer, which declares its own estimators and what it supplies. None for a trainer
            without own estimators that supplies groups only.
        supplies: What the trainer supplies in this run, if that is not what `trainer` declares.

    Raises:
        ConfigError: The estimator or an option is unknown, a value is out of range, or the trainer does not
            supply what the estimator needs.
    """
    own = () if trainer is None else trainer.own_estimators
    names = names_in_trainer(own)
    if name not in names:
        known = [one for one in names if one.removeprefix(PREFIX) == one or one[len(PREFIX) :] not in names]
        raise unknown_estimator(option, name, [*own, *known])
    estimator = get_estimator(names[name])
    if supplies is None:
        supplies = ("group_ids",) if trainer is None else trainer.supplies_for(estimator)
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
    gamma = real(gamma_option, gamma, 0, 1)
    if missing := estimator.missing(chosen, supplies):
        who = "this trainer" if trainer is None else trainer.name
        raise ConfigError(
            f"{name} needs {missing}, which {who} does not supply to it; it supplies "
            f"{', '.join(supplies) or 'nothing'}"
        )
    choice = EstimatorChoice(name, estimator, gamma, chosen, scope, truncation)
    _try_options(choice, prefix.removesuffix(".") or name)
    return choice


def _try_options(choice: EstimatorChoice, where: str) -> None:
    """Reject options with which the estimator fails on two groups of four episodes, which it otherwise takes.

    An option may have one entry for each component of the reward, or choose some: as many components as an
    option has entries are tried, and more than any option chooses from.

    Raises:
        ConfigError: The message begins with `where`, and ends with what the estimator said.
    """
    entries = [len(value) or 1 for value in choice.options.values() if hasattr(value, "__len__")]
    errors = [_failure(choice, components) for components in (64, *entries) if choice.options]
    if errors and all(errors):
        why = error_text(errors[-1]) if isinstance(errors[-1], ConfigError) else error_line(errors[-1])
        raise ConfigError(f"{where}={choice.options}: {why}") from errors[-1]


def _failure(choice: EstimatorChoice, components: int) -> Any:
    """Return what the estimator raises only with its options; None for nothing."""
    zeros, episodes = dict.fromkeys(map(str, range(components)), 0.0), []
    for rewards in ([float(n), 1.0] for n in range(8)):
        parts = [{**zeros, "0": reward} for reward in rewards]
        episodes.append(EpisodeTurns(rewards, [1, 2], "env", state_keys=["a", "b"], reward_components=parts))
    others = {"values": [[0.0, 0.0]] * 8, "baselines": [0.0] * 8}
    for tried in (replace(choice, options={}), choice):
        further = {name: value for name, value in others.items() if name in tried.needs}
        try:
            tried.compute_turns(episodes, [n // 4 for n in range(8)], **further)
        except Exception as error:  # a user's estimator can raise anything
            return error if tried is choice else None
    return None


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
