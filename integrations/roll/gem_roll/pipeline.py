"""``pipeline_cls: gem_roll.ReBNAgenticPipeline``: ROLL's agentic pipeline with gem_core's advantages.

They are computed over all collected turns, before ROLL copies or drops rows to fill its batches, and replace
ROLL's own advantages right before the actor's update. Failed episodes are dropped earlier.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic import agentic_pipeline
from roll.pipeline.agentic.agentic_pipeline import AgenticPipeline

from gem_core.errors import ConfigError
from gem_core.trainers.failures import batch_metrics
from gem_core.trainers.imports import replaced
from gem_core.trainers.interface import expect_listed, unsupported
from gem_roll import SUPPORTED
from gem_roll.advantages import compute_advantages
from gem_roll.failures import PlayedOnly, episodes_of, guard_group_filter, take_failed
from gem_roll.kinds import managers_of, row_kind_of
from gem_roll.options import check_config
from gem_roll.rows import EPISODE_JSON, TURN_IDS, object_array

expect_listed(SUPPORTED, "pipeline")

ADVANTAGES, RETURNS = "gem_advantages", "gem_returns"
_ROW = "gem_row"


class ReBNAgenticPipeline(AgenticPipeline):  # type: ignore[misc]
    """ROLL's pipeline with gem_core's advantages.

    Args:
        pipeline_config: ROLL's `AgenticConfig`; unsupported settings are rejected before a model is loaded.
    """

    def __init__(self, pipeline_config: Any) -> None:
        self.gem_options = check_config(pipeline_config)
        if needs_old_logprobs(pipeline_config):
            pipeline_config.enable_old_logprobs_recompute = True
        for section in (pipeline_config.train_env_manager, pipeline_config.val_env_manager):
            guard_group_filter(section)
        with replaced(agentic_pipeline, "RolloutScheduler", PlayedOnly):
            super().__init__(pipeline_config)
        self._train_step = self.actor_train.train_step
        self.actor_train.train_step = self._train_with_advantages
        self._advantages_wait = False

    def adjust_batch(self, data: DataProto, mode: str = "copy") -> DataProto:
        """Compute the advantages of all rows of the step, then let ROLL copy or drop rows; mask the copies.

        If episodes have failed, rows are copied whatever `mode` is, so that no other episode is dropped
        because of them.
        """
        result = compute_advantages(data, self.gem_options.choose_estimator(self.pipeline_config))
        data.batch[ADVANTAGES], data.batch[RETURNS] = result.advantages, result.returns
        failed = take_failed(data)
        metrics = batch_metrics(episodes_of(data) + failed, result.stats)
        if failed and "step" not in data.non_tensor_batch:
            mode = "copy"
        for key in (TURN_IDS, EPISODE_JSON):
            if key in data.batch or key in data.non_tensor_batch:
                del data[key]
        data.non_tensor_batch[_ROW] = object_array(range(len(data)))
        adjusted = super().adjust_batch(data, mode)
        mask_copies(adjusted)
        self._check_updates(len(adjusted))
        self._advantages_wait = True
        adjusted.meta_info.setdefault("metrics", {}).update(metrics)
        return adjusted

    def _check_updates(self, rows: int) -> None:
        updates = rows // (update_size(self.pipeline_config) * self.actor_train.dp_size)
        if updates > 1 and not self.pipeline_config.enable_old_logprobs_recompute:
            raise ConfigError(
                f"the {rows} rows of a step make {updates} updates, and PPO's ratio would be 1 in all of "
                "them; set enable_old_logprobs_recompute: true"
            )

    def _train_with_advantages(self, batch: DataProto, *args: Any, **kwargs: Any) -> Any:
        use_advantages(batch, self.pipeline_config.advantage_clip)
        self._advantages_wait = False
        return self._train_step(batch, *args, **kwargs)

    def do_checkpoint(self, global_step: int, *args: Any, **kwargs: Any) -> Any:
        """Check at the end of a step that ROLL trained on the advantages, before it saves the weights.

        Raises:
            UnsupportedTrainer: ROLL updated the actor in another way, with its own advantages.
        """
        if self._advantages_wait:
            problem = "ROLL did not train on gem-core's advantages, since it did not call train_step"
            raise unsupported(SUPPORTED, f"step {global_step}: {problem}")
        return super().do_checkpoint(global_step, *args, **kwargs)


def update_size(config: Any) -> int:
    """Return the number of rows of an update on each GPU group of the actor."""
    training = config.actor_train.training_args
    size: int = training.per_device_train_batch_size * training.gradient_accumulation_steps
    return size


def needs_old_logprobs(config: Any) -> bool:
    """Return whether a step may have several updates, so that PPO needs the log-probs before the first one.

    For a single update, ROLL uses the update's own log-probs as the old ones. It counts only complete batches
    of episodes as updates, but each turn may be a row, and copies fill the last batch.
    """
    if {row_kind_of(manager) for manager in managers_of(config).values()} != {"episode"}:
        return True
    if update_size(config) % config.actor_train.infer_batch_size:  # rows are copied to fill both sizes
        return True
    # ROLL's rule is `rows // size > 1`, with the number of GPU groups in `size`; this asks for `rows > size`.
    doubled = copy.copy(config)
    doubled.rollout_batch_size = 2 * config.rollout_batch_size - 1
    doubled.set_old_logprobs_status()
    return bool(doubled.enable_old_logprobs_recompute)


def mask_copies(data: DataProto) -> None:
    """Remove the second and later copies of a row from the response mask."""
    rows, mask = data.non_tensor_batch[_ROW].astype(int), data.batch["response_mask"]
    first = torch.from_numpy(np.unique(rows, return_index=True)[1])
    data.batch["response_mask"] = torch.zeros_like(mask).index_copy_(0, first, mask[first])
    del data[_ROW]


def use_advantages(data: DataProto, clip: float | None) -> None:
    """Replace ROLL's advantages with ours: 0 where the response mask is 0, and clipped as in ROLL."""
    mask = data.batch["response_mask"][:, 1:]
    advantages = data.batch[ADVANTAGES] * mask
    data.batch["returns"] = data.batch[RETURNS] * mask
    data.batch["raw_advantages"] = advantages
    data.batch["advantages"] = advantages if clip is None else torch.clamp(advantages, -clip, clip)
    for key in (ADVANTAGES, RETURNS):
        del data[key]
