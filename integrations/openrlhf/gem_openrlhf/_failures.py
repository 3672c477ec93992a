"""Keeps failed episodes out of all other computations of OpenRLHF besides the advantages.

A failed episode is a row without an action token. It stays in the batch because OpenRLHF expects one row for
each sample. Its reward of 0 would count in metrics and filters, and OpenRLHF divides by the number
of action tokens of each micro-batch. The functions here wrap the methods of OpenRLHF that do so; `hooks`
installs them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from gem_chat._failures import nothing_trainable
from gem_core.errors import ConfigError
from gem_core.trainers._failures import evaluation_logs
from gem_openrlhf._labels import ROWS, played_of

TINY = 1e-30
"""Weight of a micro-batch that must not count in a weighted mean; OpenRLHF divides by it in float32."""


def empty_rows(labels: Sequence[Any]) -> torch.Tensor:
    """Return, as bool (rows,), which rows come from the agent of gem_openrlhf and have no sampled token."""
    rows = [played_of(label) for label in labels]
    return torch.tensor([row is not None and row.is_empty for row in rows])


def counted_rows(labels: Sequence[Any]) -> torch.Tensor:
    """Return, as bool (rows,), which rows count in means over samples: the first of each trained episode."""
    rows = [played_of(label) for label in labels]
    return torch.tensor([row is None or not (row.is_empty or row.episode is None) for row in rows])


def require_tokens(labels: Sequence[Any], what: str) -> None:
    """Reject rows of the agent of gem_openrlhf if none of them has a sampled token.

    Args:
        labels: Labels of the rows.
        what: Description of the rows, for the message.

    Raises:
        EnvError: No row has a sampled token; the message names the first episode and its error.
    """
    if empty_rows(labels).all():
        episodes = [row.episode for row in map(played_of, labels) if row is not None]
        raise nothing_trainable([episode for episode in episodes if episode is not None], what)


def _is_empty(sample: Any) -> bool:
    return bool(empty_rows(sample.labels).all())


def actor_step(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `ActorPPOTrainer.training_step` so that its metrics cover the episodes that are trained on."""

    @functools.wraps(original)
    def training_step(
        self: Any, experience: Any, kl_ctl: float, step: int, loss_batch_info: Any = None
    ) -> dict[str, Any]:
        _require_tokens(self, experience, step, loss_batch_info)
        counted = counted_rows(experience.labels)
        status: dict[str, Any] = original(self, experience, kl_ctl, step, loss_batch_info)
        return status if counted.all() else _over(status, counted)

    return training_step


def critic_step(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `CriticPPOTrainer.training_step`: a micro-batch without tokens has a mean value of 0, not NaN."""

    @functools.wraps(original)
    def training_step(self: Any, experience: Any, step: int, loss_batch_info: Any = None) -> dict[str, float]:
        _require_tokens(self, experience, step, loss_batch_info)
        status: dict[str, float] = original(self, experience, step, loss_batch_info)
        return status if experience.action_mask.any() else {**status, "values": 0.0}

    return training_step


def _require_tokens(trainer: Any, experience: Any, step: int, loss_batch_info: Any) -> None:
    """Reject an update that contains only failed episodes, for which OpenRLHF's loss would be 0 / 0.

    Raises:
        EnvError: All episodes of this micro-batch failed; the message describes the first one.
    """
    if loss_batch_info is None:
        tokens = trainer.replay_buffer.dynamic_batch_num_tokens[step]
    else:
        tokens = loss_batch_info["batch_num_tokens"]
    if not float(tokens):
        require_tokens(experience.labels, "an update of --train.batch_size rows")


def _over(status: dict[str, Any], counted: torch.Tensor) -> dict[str, Any]:
    """Return the status of a micro-batch with means over the counted rows."""
    metrics = dict(status["metrics"])
    for name, value in status["metrics"].items():
        if isinstance(value, torch.Tensor) and status["weights"][name] == "sample":
            kept = value[counted.to(value.device)].float()
            metrics[name] = kept if len(kept) else torch.zeros(1)
        elif isinstance(value, torch.Tensor) and not status["num_action_tokens"]:
            metrics[name] = torch.zeros_like(value)
    return {
        **status,
        "metrics": metrics,
        "num_samples": float(counted.sum()) or TINY,
        "num_action_tokens": status["num_action_tokens"] or TINY,
    }


def rollout_stats(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `BasePPOTrainer._compute_rollout_stats` to count the episodes that did not fail."""

    @functools.wraps(original)
    def compute(self: Any, experiences: list[Any]) -> Any:
        kept = []
        for experience in experiences:
            rows = counted_rows(experience.labels)
            if rows.any():
                reward = {name: values[rows] for name, values in experience.info.items() if name == "reward"}
                parts = (getattr(experience, name) for name in ("response_length", "truncated"))
                length, truncated = (None if part is None else part[rows] for part in parts)
                kept.append(SimpleNamespace(info=reward, response_length=length, truncated=truncated))
        return original(self, kept)

    return compute


class _Groups:
    """Samples in the order of OpenRLHF's workers: all samples of one prompt, then those of the next.

    Args:
        samples: Number of samples of each prompt.
        target: Number of prompts that OpenRLHF collects.
    """

    def __init__(self, samples: int, target: int) -> None:
        self._samples = samples
        self._target = target
        self._group: list[Any] = []
        self._failed: list[str] = []
        self.means: list[float] = []
        """Mean score of each prompt; NaN if all of its samples failed."""

    def add(self, sample: Any) -> None:
        """Record a sample; the last sample of a prompt sets the scores of its failed samples.

        Raises:
            EnvError: All samples failed for `wanted` prompts in a row. Without this error, OpenRLHF would go
                through its whole dataset.
        """
        self._group.append(sample)
        if len(self._group) < self._samples:
            return
        group, self._group = self._group, []
        failed = [one for one in group if _is_empty(one)]
        if failed:
            scores = [one.scores for one in group if not _is_empty(one)] or [torch.tensor([torch.nan])]
            for one in failed:
                one.scores = torch.stack(scores).float().mean(0)
        self.means.append(float(torch.stack([one.scores for one in group]).float().mean()))
        labels = [label for one in group for label in one.labels]
        self._failed = self._failed + labels if len(failed) == len(group) else []
        if len(self._failed) >= self._target * self._samples:
            require_tokens(self._failed, f"{self._target} prompts in a row")


def generate(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `SamplesGenerator._generate_vllm` so that dynamic filtering ignores failed episodes.

    OpenRLHF filters a prompt by the mean score of its samples. Failed samples get the mean of the others. If
    all samples failed, the mean is NaN, which no range contains, so OpenRLHF plays another prompt.

    A filter that drops the whole dataset is an error, because OpenRLHF would end the run without an update.
    """

    @functools.wraps(original)
    def collect(
        self: Any, dataloader_iter: Any, num_prompts: int, dynamic_filtering: bool, **generate_kwargs: Any
    ) -> Any:
        samples = generate_kwargs.get("n_samples_per_prompt", self.args.rollout.n_samples_per_prompt)
        self.gem_groups = groups = _Groups(samples, num_prompts) if dynamic_filtering else None
        result = original(self, dataloader_iter, num_prompts, dynamic_filtering, **generate_kwargs)
        kept, _, exhausted = result
        if groups is not None:
            before = getattr(self, "gem_dropped", [])  # of the calls in which no prompt passed
            self.gem_dropped = None if kept or before is None else before + groups.means
            if exhausted and len(self.gem_dropped or ()) >= num_prompts:
                raise _all_dropped(self.gem_dropped, self.args.algo.dynamic_filtering_range)
        return result

    return collect


def _all_dropped(means: Sequence[float], limits: Sequence[float]) -> ConfigError:
    known = [mean for mean in means if mean == mean] or [float("nan")]
    return ConfigError(
        f"dynamic filtering dropped all {len(means)} prompts: it keeps those whose mean return is between "
        f"{limits[0]:g} and {limits[1]:g}, both excluded, but the means are from {min(known):g} to "
        f"{max(known):g}; set --algo.dynamic_filtering_range"
    )


def process_response(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `SamplesGenerator._process_response_into_experience`; see `generate`, and `gem_openrlhf._rows`."""

    @functools.wraps(original)
    def process(self: Any, response: Any, **generate_kwargs: Any) -> Any:
        sample = original(self, response, **generate_kwargs)
        setattr(sample, ROWS, [original(self, row, **generate_kwargs) for row in response.get(ROWS, ())])
        if self.gem_groups is not None:
            self.gem_groups.add(sample)
        return sample

    return process


def eval_metrics(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `compute_eval_metrics` to add metrics per environment, ``eval_<environment>_gem/success``."""

    @functools.wraps(original)
    def compute(eval_dataloader: Any, samples_list: Any, n_samples_per_prompt: int) -> dict[str, Any]:
        scored = eval_samples(samples_list, n_samples_per_prompt)
        logs = dict(original(eval_dataloader, scored, n_samples_per_prompt))
        rows = (row for sample in samples_list for row in map(played_of, sample.labels))
        played = (
            (row.source, row.episode) for row in rows if row and row.episode is not None and not row.is_own
        )
        return logs | evaluation_logs(played, "eval_{env}_{metric}")

    return compute


def eval_samples(samples_list: Sequence[Any], n_samples: int) -> list[Any]:
    """Return the samples of an evaluation so that OpenRLHF's own metrics count episodes that did not fail.

    Prompts keep their number of samples: a failed sample gets the mean reward of the other samples of its
    prompt. A prompt whose samples all failed is omitted. The length of a sample is that of all its rows.
    """
    kept: list[Any] = []
    for first in range(0, len(samples_list), n_samples):
        group = [_with_all_rows(sample) for sample in samples_list[first : first + n_samples]]
        rewards = [sample.rewards.float() for sample in group if not _is_empty(sample)]
        if rewards:
            unknown = {"rewards": torch.stack(rewards).mean(0), "response_length": None, "truncated": None}
            kept += [dataclasses.replace(one, **unknown) if _is_empty(one) else one for one in group]
    return kept


def _with_all_rows(sample: Any) -> Any:
    """Return a sample with the response length of its whole episode."""
    further = getattr(sample, ROWS, ())
    if not further:
        return sample
    return dataclasses.replace(sample, response_length=sum(row.response_length for row in (sample, *further)))
