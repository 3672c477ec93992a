"""Handles failed episodes, which have a row in ROLL's queues but must not get any further.

A subclass of ROLL's scheduler drops the rows from a batch before ROLL computes anything from it, and a group
filter sees only the other episodes of a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roll.distributed.scheduler.protocol import DataProto
from roll.distributed.scheduler.rollout_scheduler import RolloutScheduler
from roll.utils.import_utils import safe_import_class

from gem_chat._failures import nothing_trainable
from gem_core.rollout import Episode, episode_metrics
from gem_core.trainers._failures import pack_outline, unpack_outline
from gem_roll._rows import EPISODE_JSON, object_array

FAILED = "gem_failed"
"""Key of a batch's ``meta_info`` with the outlines, as JSON, of the dropped episodes."""
RATES = ("error_rate", "retry_rate")
"""Metrics that count failed episodes, named ``gem/<rate>`` and ``env/<tag>/<rate>``."""
DEFAULT_FILTER = "roll.pipeline.agentic.agentic_pipeline.GroupFilter"
"""ROLL's default for ``group_filter_cls``, which keeps all groups."""


class PlayedOnly(RolloutScheduler):  # type: ignore[misc]
    """ROLL's scheduler, with batches that contain no failed episodes.

    Raises:
        EnvError: All episodes of a training batch failed.
    """

    async def _get_batch(self, batch_size: int, global_step: int) -> list[DataProto]:
        rollouts = await super()._get_batch(batch_size, global_step)
        return played_only(rollouts, self.mode == "train", f"step {global_step}")


def played_only(rollouts: Sequence[DataProto], training: bool, what: str) -> list[DataProto]:
    """Return the rollouts of episodes that did not fail; the first one holds the outlines of the failed ones.

    If all episodes of a validation failed, their rows stay with a score of NaN, because ROLL needs rows.

    Args:
        rollouts: Rollouts from env managers, one per episode.
        training: Whether the rollouts are for training.
        what: Name of the batch in the error.

    Raises:
        EnvError: All episodes of a training batch failed.
    """
    episodes = [outline_of(rollout) for rollout in rollouts]
    ours = [episode for episode in episodes if episode is not None]
    if not ours:
        return list(rollouts)
    kept = [rollout for rollout, e in zip(rollouts, episodes, strict=True) if e is None or e.trainable]
    if not kept:
        if training:
            raise nothing_trainable(ours, what)
        for rollout in rollouts:
            rollout.non_tensor_batch["episode_scores"] = object_array([math.nan] * len(rollout))
        return list(rollouts)
    by_prefix: dict[str, list[Episode]] = {"gem": ours}
    for rollout, episode in zip(rollouts, episodes, strict=True):
        if episode is not None:
            by_prefix.setdefault(f"env/{rollout.non_tensor_batch['tags'][0]}", []).append(episode)
    rates: dict[str, float] = {}
    for prefix, played in by_prefix.items():
        metrics = episode_metrics(played)
        rates |= {f"{prefix}/{rate}": metrics[f"gem/{rate}"] for rate in RATES}
    for rollout in kept:  # equal values, because ROLL averages over the rollouts that have a metric
        rollout.meta_info["metrics"] |= rates
    kept[0].meta_info[FAILED] = [pack_outline(episode) for episode in ours if not episode.trainable]
    return kept


def episodes_of(data: Any) -> list[Episode]:
    """Return outlines of the episodes behind the rows; rows of other env managers have none."""
    return [unpack_outline(text) for text in data.non_tensor_batch.get(EPISODE_JSON, ()) if text]


def take_failed(data: DataProto) -> list[Episode]:
    """Remove and return the outlines of the episodes that a scheduler dropped from a batch."""
    return [unpack_outline(text) for text in data.meta_info.pop(FAILED, [])]


def outline_of(rollout: DataProto) -> Episode | None:
    """Return the outline of a rollout's episode; None if the env manager is not ours."""
    return next(iter(episodes_of(rollout)), None)


class PlayedGroupFilter:
    """Runs the ``group_filter_cls`` of a YAML on the episodes of a group that did not fail.

    A group whose episodes all failed is kept; otherwise ROLL would replace it forever.
    """

    def __init__(self, config: Any, env_manager_config: Any, mode: str) -> None:
        kind = safe_import_class(env_manager_config.gem_group_filter_cls)
        self._filter = kind(config, env_manager_config, mode)

    def filter(self, group_id: int, episode_id: int, group: list[DataProto]) -> bool:
        """Return whether ROLL plays another group instead of this one."""
        episodes = [outline_of(rollout) for rollout in group]
        played = [r for r, e in zip(group, episodes, strict=True) if e is None or e.trainable]
        return bool(played) and bool(self._filter.filter(group_id, episode_id, played))


def guard_group_filter(section: Any) -> None:
    """Wrap the group filter named in a section of a ROLL config in `PlayedGroupFilter`.

    Args:
        section: ``train_env_manager`` or ``val_env_manager``.
    """
    guard = f"{PlayedGroupFilter.__module__}.{PlayedGroupFilter.__name__}"
    if section.group_filter_cls not in (DEFAULT_FILTER, guard):
        section.gem_group_filter_cls, section.group_filter_cls = section.group_filter_cls, guard
