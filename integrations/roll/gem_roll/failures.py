"""Failed episodes: ROLL's queues need a row for each, and nothing after them is to see it.

Its schedulers get subclasses that leave those rows out of a batch before ROLL computes anything from it,
and a filter of groups sees the other episodes of a group only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from roll.distributed.scheduler.protocol import DataProto
from roll.distributed.scheduler.rollout_scheduler import RolloutScheduler
from roll.pipeline.agentic import agentic_pipeline
from roll.utils.import_utils import safe_import_class

from gem_core.rollout import Episode, episode_metrics, nothing_trainable
from gem_roll import upstream
from gem_roll.rows import OUTLINE, column

FAILED = "gem_failed"
"""In a batch's ``meta_info``: JSON of the outlines of the episodes that were left out."""
RATES = ("error_rate", "retry_rate")
"""Metrics in which failed episodes count, named ``gem/<rate>`` and ``env/<tag>/<rate>``."""

upstream.expect(RolloutScheduler, "_get_batch", "self", "batch_size", "global_step")


class PlayedOnly(RolloutScheduler):  # type: ignore[misc]
    """ROLL's scheduler, whose batches hold no failed episodes.

    Raises:
        EnvError: All episodes of a training batch failed.
    """

    async def _get_batch(self, batch_size: int, global_step: int) -> list[DataProto]:
        return played_only(
            await super()._get_batch(batch_size, global_step), self.mode == "train", f"step {global_step}"
        )


def played_only(rollouts: Sequence[DataProto], training: bool, what: str) -> list[DataProto]:
    """The rollouts of episodes that did not fail; the first one carries what is known of the others.

    A validation in which all failed keeps them, with NaN for a score: ROLL cannot do without rows.

    Args:
        rollouts: As env managers return them, an episode each.
        training: Whether they are to be trained on.
        what: Names the batch in the error.

    Raises:
        EnvError: `training`, and all of them failed.
    """
    episodes = [episode_of(rollout) for rollout in rollouts]
    kept = [rollout for rollout, e in zip(rollouts, episodes, strict=True) if e is None or e.trainable]
    ours = [episode for episode in episodes if episode is not None]
    if not ours:
        return list(rollouts)
    if not kept:
        if training:
            raise nothing_trainable(ours, what)
        for rollout in rollouts:
            rollout.non_tensor_batch["episode_scores"] = column([math.nan] * len(rollout))
        return list(rollouts)
    tags: dict[str, list[Episode]] = {"gem": ours}
    for rollout, episode in zip(rollouts, episodes, strict=True):
        if episode is not None:
            tags.setdefault(f"env/{rollout.non_tensor_batch['tags'][0]}", []).append(episode)
    for rollout in kept:
        for prefix in tags:
            for rate in RATES:
                rollout.meta_info["metrics"].pop(f"{prefix}/{rate}", None)
    for prefix, of_tag in tags.items():
        metrics = episode_metrics(of_tag)
        kept[0].meta_info["metrics"] |= {f"{prefix}/{rate}": metrics[f"gem/{rate}"] for rate in RATES}
    kept[0].meta_info[FAILED] = [json.dumps(e.to_dict()) for e in ours if not e.trainable]
    return kept


def take_failed(data: DataProto) -> list[Episode]:
    """Outlines of the episodes that a scheduler left out of a batch, which forgets them."""
    return [Episode.from_dict(json.loads(text)) for text in data.meta_info.pop(FAILED, [])]


def episode_of(rollout: DataProto) -> Episode | None:
    """The outline of the episode behind a rollout; None where the env manager is not ours."""
    column = rollout.non_tensor_batch.get(OUTLINE)
    return None if column is None else Episode.from_dict(json.loads(column[0]))


@contextmanager
def schedulers_leave_out_failed() -> Iterator[None]:
    """Let a pipeline that is made inside this block have schedulers of this module."""
    assert agentic_pipeline.RolloutScheduler is RolloutScheduler
    agentic_pipeline.RolloutScheduler = PlayedOnly
    try:
        yield
    finally:
        agentic_pipeline.RolloutScheduler = RolloutScheduler


class PlayedGroupFilter:
    """Stands before the ``group_filter_cls`` of a YAML, which then sees no failed episode.

    A group whose episodes all failed is not filtered: it would be played again for ever.
    """

    def __init__(self, config: Any, env_manager_config: Any, mode: str) -> None:
        kind = safe_import_class(env_manager_config.gem_group_filter_cls)
        self._filter = kind(config, env_manager_config, mode)

    def filter(self, group_id: int, episode_id: int, group: list[DataProto]) -> bool:
        """Whether ROLL plays another group in place of this one."""
        episodes = [episode_of(rollout) for rollout in group]
        played = [r for r, e in zip(group, episodes, strict=True) if e is None or e.trainable]
        return bool(played) and bool(self._filter.filter(group_id, episode_id, played))


def guard_group_filter(section: Any) -> None:
    """Put `PlayedGroupFilter` before the filter of groups that a section of a ROLL config names.

    Args:
        section: ``train_env_manager`` or ``val_env_manager``.
    """
    own = f"{PlayedGroupFilter.__module__}.{PlayedGroupFilter.__name__}"
    default = type(section).__dataclass_fields__["group_filter_cls"].default
    if section.group_filter_cls not in (default, own):
        section.gem_group_filter_cls, section.group_filter_cls = section.group_filter_cls, own
