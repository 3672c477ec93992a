"""Advantages per turn, where OpenRLHF has one reward per sample.

`GemExperienceMaker` replaces OpenRLHF's experience maker. It overrides the method that turns rewards into
advantages, which runs after all other tensors of the batch have been computed. With one of OpenRLHF's
estimators, it only adds metrics and keeps failed episodes out of the baselines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from openrlhf.models.utils import masked_mean, masked_normalize
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.utils.logging_utils import init_logger

from gem_core.advantages import ReturnStats, get_estimator
from gem_core.errors import ConfigError
from gem_core.rollout._estimator_inputs import EpisodeTurns
from gem_core.rollout._sources import SourceLedger
from gem_core.trainers import EstimatorChoice, batch_metrics
from gem_core.trainers._estimators import TurnLog
from gem_core.trainers._facts import batch_turn_ids
from gem_openrlhf._baselines import failures_left_out
from gem_openrlhf._failures import empty_rows, require_tokens
from gem_openrlhf._labels import Played, played_of, source_of
from gem_openrlhf._options import (
    GAE_OF_BOTH,
    GemOptions,
    check_args,
    check_turn_rewards,
    estimator_names,
    row_average,
)
from gem_openrlhf._rows import RowLayout, lay_out_rows, means_of_episodes, sums_of_episodes

SPANS = "the agent's spans, with the environment's reward for each turn"
RUNS = "the runs of 1s in the action mask, with the sample's reward on its last turn"
BOTH = f"{SPANS}, and, in rows of another agent, {RUNS}"
MEANS = ("kl", "logprobs_diff")
"""Metrics that are means over the action tokens of a row."""
_log_turns = TurnLog(init_logger(__name__))  # only OpenRLHF's own loggers have a handler in its processes


class GemExperienceMaker(RemoteExperienceMaker):  # type: ignore[misc]
    """OpenRLHF's experience maker with gem_core's estimators.

    Raises:
        ConfigError: A flag is not supported.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gem_options = GemOptions.from_environment()
        check_args(self.args, self.gem_options)
        if self.gem_options.estimator is not None:
            self.args.algo.advantage.estimator = self.advantage_estimator = self.gem_options.estimator
        self.gem_ledger, self.gem_steps = SourceLedger(), 0
        self.gem_layout: RowLayout | None = None

    def split_rollout_samples(self, rollout_samples: list[Any]) -> list[Any]:
        """Do the same as OpenRLHF, also if samples have several rows, or only some of them have a metric."""
        if self.gem_options.takes_rows:
            rollout_samples, self.gem_layout = lay_out_rows(rollout_samples, self.args)
        _fill_metrics(rollout_samples)
        result: list[Any] = super().split_rollout_samples(rollout_samples)
        return result

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Any]) -> list[Any]:
        """Set the advantages and returns of a batch, in place.

        Args:
            experiences: Micro-batches of the whole batch, of all data-parallel ranks.

        Raises:
            ConfigError: The estimator is ``gae``, and only some of the rows come from gem_core's agent.
            EnvError: No episode of the batch is trainable, or a source of rows lost all of its episodes; the
                message names the first one and its error.
        """
        labels = [label for experience in experiences for label in experience.labels]
        require_tokens(labels, "a batch of --rollout.batch_size prompts")
        rows = [played_of(label) for label in labels]
        trained = [bool(mask.any()) for experience in experiences for mask in experience.action_mask]
        self.gem_steps += 1
        sources = _count_sources(
            self.gem_ledger, f"batch {self.gem_steps} of this run", labels, rows, trained
        )
        for experience in experiences:
            _clear_means(experience)
        name, stats = self.advantage_estimator, None
        kinds = {row is not None for row, used in zip(rows, trained, strict=True) if used}
        if name == "gae" and len(kinds) > 1:
            raise ConfigError(GAE_OF_BOTH)
        if name in estimator_names() or (name == "gae" and True in kinds):
            check_turn_rewards(self.args)
            stats = self._estimate(name, experiences, rows)
        else:
            with failures_left_out(self.args, experiences, ~empty_rows(labels)):
                experiences = super().compute_advantages_and_returns(experiences)
        played = [row.episode for row in rows if row and row.episode is not None and not row.is_own]
        _add_metrics(experiences, batch_metrics(played, stats) | sources)
        return experiences

    def _estimate(self, name: str, experiences: list[Any], rows: Sequence[Played | None]) -> ReturnStats:
        batch = _Batch(experiences, rows, self.gem_layout)
        token_rewards = batch.token_rewards(max(float(self.kl_ctl.value), 0.0))
        samples = self.args.rollout.n_samples_per_prompt
        advantage = self.args.algo.advantage
        if name == "gae":
            choice = EstimatorChoice(name, get_estimator(name), advantage.gamma, {"lam": advantage.lambd})
            inputs: dict[str, Any] = {"values": batch.pad("values")}
        else:
            choice, inputs = self.gem_options.estimator_choice(name, advantage.gamma), {}
        if self.gem_layout is not None:
            inputs |= {"episodes": batch.episodes, "turns": batch.turns}
        result = choice.compute(
            token_rewards,
            batch.mask,
            turn_ids=batch.turn_ids,
            group_ids=[number // samples for number in batch.episodes],
            played=[EpisodeTurns.of(one, choice.needs) if one else None for one in batch.outlines],
            **inputs,
        )
        advantages = result.advantages
        if name == "gae":
            advantages = _whiten(advantages, batch.mask, scale=not advantage.no_std_norm)
        if self.gem_layout is not None:
            batch.join_means()
            factors = self.gem_layout.factors(row_average(self.args), batch.mask.sum(1).int().tolist())
            advantages = advantages * advantages.new_tensor(factors)[:, None]
        batch.give(advantages, result.returns, token_rewards)
        _log_turns(name, result.stats, SPANS if all(rows) else BOTH if any(rows) else RUNS)
        return result.stats


class _Batch:
    """The micro-batches as (rows, tokens) tensors of equal width.

    Column j belongs to token j + 1 of a row, as in OpenRLHF's action mask.

    Args:
        experiences: The micro-batches.
        rows: What is known about each row.
        layout: The rows of episodes of several; None if each row is an episode.
    """

    def __init__(
        self, experiences: list[Any], rows: Sequence[Played | None], layout: RowLayout | None
    ) -> None:
        self._experiences = experiences
        self._rows = rows
        self._width = max(experience.action_mask.shape[1] for experience in experiences)
        self.mask = self.pad("action_mask")
        self.turn_ids = batch_turn_ids([row and (row.spans, 1) for row in rows], self.mask)
        if ((self.turn_ids >= 0) != (self.mask != 0)).any():
            raise ConfigError(
                "the agent's spans are not where OpenRLHF's action mask is 1: was a row cut to "
                "--data.max_len by something other than the agent?"
            )
        self.episodes = [number for experience in experiences for number in experience.index]
        if layout is not None:
            self.episodes = [layout.episodes[number] for number in self.episodes]
        runs = (self.turn_ids.amax(1) + 1).tolist()
        self.turns = [row.turns if row else list(range(run)) for row, run in zip(rows, runs, strict=True)]
        pairs = zip(self.episodes, rows, strict=True)
        known = {number: row.episode for number, row in pairs if row and row.episode is not None}
        self.outlines = [known.get(number) for number in self.episodes]

    def pad(self, name: str) -> torch.Tensor:
        """Return a field of all micro-batches, padded with 0."""
        parts = [getattr(experience, name) for experience in self._experiences]
        return torch.cat([torch.nn.functional.pad(part, (0, self._width - part.shape[1])) for part in parts])

    def token_rewards(self, kl_coef: float) -> torch.Tensor:
        """Return the reward of each turn on its last token and the KL penalty on every token.

        `Experience.kl` is 0 if OpenRLHF adds no KL penalty to the reward.

        A row of another agent has its one reward on its last action token, as in OpenRLHF.

        Returns:
            float64 (rows, tokens).
        """
        rewards = -kl_coef * self.pad("kl").double() * self.mask
        single = torch.cat([experience.rewards for experience in self._experiences]).double()
        for number, (row, outline) in enumerate(zip(self._rows, self.outlines, strict=True)):
            if row is not None:
                for (_, end), turn in zip(row.spans, row.turns, strict=True):
                    rewards[number, end - 2] += outline.rewards[turn] if outline else 0.0
            elif self.mask[number].any():
                rewards[number, int(self.mask[number].nonzero()[-1])] += single[number]
        return rewards

    def join_means(self) -> None:
        """Replace OpenRLHF's means over the action tokens of a row by those over its episode."""
        sizes = [len(experience.action_mask) for experience in self._experiences]
        for name in MEANS:
            if all(name in experience.info for experience in self._experiences):
                values = torch.cat([experience.info[name] for experience in self._experiences])
                means = means_of_episodes(values, self.mask.sum(1), self.episodes)
                for experience, part in zip(self._experiences, means.split(sizes), strict=True):
                    experience.info[name] = part

    def give(self, advantages: torch.Tensor, returns: torch.Tensor, token_rewards: torch.Tensor) -> None:
        """Store its part of the tensor in each micro-batch, cut to the micro-batch's width."""
        sizes = [len(experience.action_mask) for experience in self._experiences]
        totals = sums_of_episodes(token_rewards.sum(1), self.episodes)
        parts = zip(*(tensor.split(sizes) for tensor in (advantages, returns, totals)), strict=True)
        for experience, (advantage, target, total) in zip(self._experiences, parts, strict=True):
            width = experience.action_mask.shape[1]
            experience.advantages = advantage[:, :width].clone()
            experience.returns = target[:, :width].clone()
            experience.info["return"] = total.float()
            experience.kl = None  # now part of the rewards; OpenRLHF also drops it here


def _clear_means(experience: Any) -> None:
    """Set OpenRLHF's means over the action tokens of a row to 0, not NaN, for a row without any."""
    empty = ~(experience.action_mask != 0).any(1)
    for name in MEANS:
        if name in experience.info:
            experience.info[name] = experience.info[name].masked_fill(empty, 0.0)


def _whiten(advantages: torch.Tensor, mask: torch.Tensor, *, scale: bool) -> torch.Tensor:
    """Return advantages with mean 0 and, if `scale`, variance 1 over action tokens, like OpenRLHF's GAE."""
    values, kept = advantages.double().flatten(), (mask != 0).flatten()
    centered = masked_normalize(values, kept, dim=0) if scale else (values - masked_mean(values, kept)) * kept
    whitened: torch.Tensor = centered.view_as(advantages).float()
    return whitened


def _count_sources(
    ledger: SourceLedger,
    step: str,
    labels: Sequence[Any],
    rows: Sequence[Played | None],
    trained: Sequence[bool],
) -> dict[str, float]:
    """Return the metrics of a ledger for the rows of a batch; `trained`: which rows have an action token."""
    played, lost = [], []
    for label, row, sampled in zip(labels, rows, trained, strict=True):
        if row is not None and row.episode is None:
            continue  # not the first row of its episode
        if sampled:
            played.append(source_of(label))
        else:
            episode = row and row.episode
            error = episode.error or episode.stop_reason if episode else "no token was sampled"
            lost.append((source_of(label), error))
    return ledger.close_step(step, played, lost, filled=len(lost))


def _fill_metrics(samples: Sequence[Any]) -> None:
    """Give every sample every metric: the mean of the others, which does not change the mean over all.

    A reward function may return ``extra_logs``, and an environment has none. OpenRLHF cannot batch samples
    with different metrics.
    """
    values: dict[str, list[torch.Tensor]] = {}
    for sample in samples:
        for name, value in sample.info.items():
            values.setdefault(name, []).append(value.float())
    for name, given in values.items():
        if len(given) < len(samples):
            mean = torch.stack(given).mean(0)
            for sample in samples:
                sample.info[name] = sample.info[name].float() if name in sample.info else mean.clone()


def _add_metrics(experiences: list[Any], metrics: Mapping[str, float]) -> None:
    """Store the metrics of the batch in every sample, because OpenRLHF logs the mean over the samples."""
    for experience in experiences:
        for name, value in metrics.items():
            experience.info[name] = torch.full((len(experience.action_mask),), float(value))
