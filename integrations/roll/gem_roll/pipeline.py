"""``pipeline_cls: gem_roll.ReBNAgenticPipeline``: ROLL's agentic pipeline with gem_core's advantages.

They are computed over all turns that were collected, before ROLL copies or drops rows to fill its
batches, and replace ROLL's own right before the actor's update. Failed episodes are left out before.
"""

from __future__ import annotations

from typing import Any

import torch
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic.agentic_pipeline import AgenticPipeline

from gem_core.rollout import episode_metrics
from gem_roll import upstream
from gem_roll.credit import assign_credit, episodes_of
from gem_roll.failures import guard_group_filter, schedulers_leave_out_failed, take_failed
from gem_roll.options import check_config, row_per_turn
from gem_roll.rows import OUTLINE, TURN_IDS, column

upstream.check_pipeline(AgenticPipeline)

ADVANTAGES, RETURNS = "gem_advantages", "gem_returns"
_ROW = "gem_row"


class ReBNAgenticPipeline(AgenticPipeline):  # type: ignore[misc]
    """See the module.

    Args:
        pipeline_config: ROLL's `AgenticConfig`; what it must not say is refused before a model is loaded.
    """

    def __init__(self, pipeline_config: Any) -> None:
        self.gem_options = check_config(pipeline_config)
        if row_per_turn(pipeline_config):
            # ROLL counts the updates of a step in episodes, and for one it takes the log-probs of the update
            # itself for the old ones. Rows of turns make several; with estimators of steps ROLL knows that.
            pipeline_config.enable_old_logprobs_recompute = True
        for section in (pipeline_config.train_env_manager, pipeline_config.val_env_manager):
            guard_group_filter(section)
        with schedulers_leave_out_failed():
            super().__init__(pipeline_config)
        self._train_step = self.actor_train.train_step
        self.actor_train.train_step = self._train_with_credit

    def adjust_batch(self, data: DataProto, mode: str = "copy") -> DataProto:
        """Give credit to all rows of the step; then let ROLL copy or drop some, copies masked out.

        Where failed episodes left a gap, rows are copied whatever `mode` says: no other episode is dropped
        because of them.
        """
        options, config = self.gem_options, self.pipeline_config
        credit = assign_credit(
            data, options.estimator, float(config.gamma), options.checked_estimator_options
        )
        data.batch[ADVANTAGES], data.batch[RETURNS] = credit.advantages, credit.returns
        failed = take_failed(data)
        metrics = episode_metrics(episodes_of(data) + failed)
        if failed and "step" not in data.non_tensor_batch:
            mode = "copy"
        if credit.stats.count:
            metrics |= credit.stats.metrics()
        for key in (TURN_IDS, OUTLINE):
            if key in data.batch or key in data.non_tensor_batch:
                del data[key]
        data.non_tensor_batch[_ROW] = column(range(len(data)))
        adjusted = super().adjust_batch(data, mode)
        mask_copies(adjusted)
        adjusted.meta_info.setdefault("metrics", {}).update(metrics)
        return adjusted

    def _train_with_credit(self, batch: DataProto, *args: Any, **kwargs: Any) -> Any:
        use_credit(batch, self.pipeline_config.advantage_clip)
        return self._train_step(batch, *args, **kwargs)


def mask_copies(data: DataProto) -> None:
    """Take rows that stand in the batch for the second time out of the response mask."""
    seen: set[int] = set()
    copies = []
    for number, row in enumerate(data.non_tensor_batch[_ROW]):
        copies += [number] if row in seen else []
        seen.add(row)
    del data[_ROW]
    if copies:
        mask = data.batch["response_mask"].clone()
        mask[copies] = 0
        data.batch["response_mask"] = mask


def use_credit(data: DataProto, clip: float | None) -> None:
    """Put our advantages in the place of ROLL's: 0 where the response mask is 0, clipped as ROLL clips."""
    mask = data.batch["response_mask"][:, 1:]
    advantages = data.batch[ADVANTAGES] * mask
    data.batch["returns"] = data.batch[RETURNS] * mask
    data.batch["raw_advantages"] = advantages
    if clip is not None:
        advantages = torch.clamp(advantages, -clip, clip)
    data.batch["advantages"] = advantages
    for key in (ADVANTAGES, RETURNS):
        del data[key]
