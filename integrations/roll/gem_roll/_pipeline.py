"""``pipeline_cls: gem_roll.ReBNAgenticPipeline``: ROLL's agentic pipeline with gem_core's advantages.

They are computed over all collected turns, before ROLL copies or drops rows to fill its batches, and replace
ROLL's own advantages right before the actor's update. Failed episodes are dropped earlier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from roll.distributed.scheduler.protocol import DataProto
from roll.pipeline.agentic import agentic_pipeline
from roll.pipeline.agentic.agentic_pipeline import AgenticPipeline, compute_train_data_metrics

from gem_core._util.seeds import derive_rng
from gem_core.errors import ConfigError
from gem_core.rollout._sources import SourceLedger, split_by_source
from gem_core.trainers import batch_metrics
from gem_core.trainers._imports import replaced
from gem_core.trainers._interface import expect_listed, unsupported
from gem_core.trainers._weights import row_factors
from gem_roll import _SUPPORTED
from gem_roll._advantages import compute_advantages
from gem_roll._failures import PlayedOnly, episodes_of, guard_group_filter, take_failed
from gem_roll._options import check_config
from gem_roll._rows import EPISODE_JSON, TURN_IDS, TURNS, object_array
from gem_roll._updates import AVERAGES, needs_old_logprobs, update_size

expect_listed(_SUPPORTED, "pipeline")

ADVANTAGES, RETURNS = "gem_advantages", "gem_returns"
_ROW = "gem_row"
ROW_NAME = "sample_uuid"
"""Key of ROLL's batch with the name under which it caches the log-probs of a row."""
COPY = "copy "
"""Beginning of the name of a masked copy."""


class ReBNAgenticPipeline(AgenticPipeline):  # type: ignore[misc]
    """ROLL's pipeline with gem_core's advantages.

    Args:
        pipeline_config: ROLL's `AgenticConfig`; unsupported settings are rejected before a model is loaded.
    """

    def __init__(self, pipeline_config: Any) -> None:
        self.gem_options = check_config(pipeline_config)
        self._ledger = SourceLedger()
        if needs_old_logprobs(pipeline_config):
            pipeline_config.enable_old_logprobs_recompute = True
        for section in (pipeline_config.train_env_manager, pipeline_config.val_env_manager):
            guard_group_filter(section)
        with replaced(agentic_pipeline, "RolloutScheduler", PlayedOnly):
            super().__init__(pipeline_config)
        self._train_step = self.actor_train.train_step
        self.actor_train.train_step = self._train_with_advantages
        self._advantages_wait = False

    def run(self) -> None:
        """Run the training; ROLL's metrics of the training data leave out masked copies."""

        def compute(batch: DataProto) -> dict[str, float]:
            metrics: dict[str, float] = compute_train_data_metrics(
                batch.select_idxs(np.flatnonzero(~is_copy(batch)))
            )
            return metrics

        with replaced(agentic_pipeline, "compute_train_data_metrics", compute):
            super().run()

    def adjust_batch(self, data: DataProto, mode: str = "copy") -> DataProto:
        """Compute the advantages of all rows of the step, then let ROLL copy or drop rows; mask the copies.

        If episodes have failed, rows are copied whatever `mode` is, so that no other episode is dropped
        because of them.

        Raises:
            EnvError: All episodes of an environment are lost; see `SourceLedger`.
        """
        result = compute_advantages(data, self.gem_options.choose_estimator(self.pipeline_config))
        data.batch[ADVANTAGES], data.batch[RETURNS] = result.advantages, result.returns
        failed = take_failed(data)
        episodes = episodes_of(data) + failed
        if failed and "step" not in data.non_tensor_batch:
            mode = "copy"
        for key in (TURN_IDS, TURNS, EPISODE_JSON):
            if key in data.batch or key in data.non_tensor_batch:
                del data[key]
        data.non_tensor_batch[_ROW] = object_array(range(len(data)))
        if mode in ("delete", "auto"):
            data = self._without_surplus(data)
        adjusted = super().adjust_batch(data, mode)
        mask_copies(adjusted)
        weigh_rows(adjusted, self.pipeline_config.loss_agg_mode)
        self._check_updates(len(adjusted))
        self._advantages_wait = True
        copies = int(is_copy(adjusted).sum())
        step = f"step {data.meta_info.get('global_step', 0)}"
        metrics = batch_metrics(episodes, result.stats)
        metrics |= self._ledger.close_step(step, *split_by_source(episodes), filled=copies)
        adjusted.meta_info.setdefault("metrics", {}).update(metrics)
        return adjusted

    def _without_surplus(self, data: DataProto) -> DataProto:
        """Delete as many rows as ROLL would, which fails in ROLL 0.3: it indexes a batch with a mask.

        Both modes delete the rows that do not fill an update, unless there are too few rows for one update,
        which ROLL then copies.
        """
        metrics = data.meta_info.setdefault("metrics", {})
        one_row = data.select_idxs(np.zeros(1, dtype=int))
        one_row.meta_info = {}
        size = len(super().adjust_batch(one_row, "copy"))  # ROLL copies it until there are enough rows
        surplus = len(data) % size
        if not surplus or len(data) < size:
            return data
        metrics |= {"system/batch_add_count": 0, "system/batch_remove_count": surplus}
        random = derive_rng(self.pipeline_config.seed, "deleted", data.meta_info.get("global_step", 0))
        return data.select_idxs(sorted(random.sample(range(len(data)), len(data) - surplus)))

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
            raise unsupported(_SUPPORTED, f"step {global_step}: {problem}")
        return super().do_checkpoint(global_step, *args, **kwargs)


def mask_copies(data: DataProto) -> None:
    """Remove the second and later copies of a row from the response mask, and name each row.

    With several epochs, ROLL caches the log-probs of the first epoch by these names. Under the name of its
    original, a masked copy would replace the original's log-probs by zeros. A copy is no part of the
    original's episode either: ROLL's actor for other losses expects one row per episode.
    """
    rows, mask = data.non_tensor_batch[_ROW].astype(int), data.batch["response_mask"]
    first = torch.from_numpy(np.unique(rows, return_index=True)[1])
    data.batch["response_mask"] = torch.zeros_like(mask).index_copy_(0, first, mask[first])
    names = np.char.add(COPY, np.arange(len(rows)).astype(str)).astype(object)
    names[first] = rows[first].astype(str)
    data.non_tensor_batch[ROW_NAME] = names
    episodes = names.copy()
    episodes[first] = data.non_tensor_batch["traj_id"][first]
    data.non_tensor_batch["traj_id"] = episodes
    del data[_ROW]


def weigh_rows(data: DataProto, loss_agg_mode: str) -> None:
    """Multiply the advantages of each row by its factor in `row_factors`, if episodes may have several rows.

    Args:
        data: ROLL's batch with the rows of an update; masked ones do not count.
        loss_agg_mode: ROLL's option.
    """
    if "step" in data.non_tensor_batch:
        lengths = data.batch["response_mask"][:, 1:].sum(1).int().tolist()
        average = AVERAGES.get(loss_agg_mode, "tokens")
        factors = row_factors(average, lengths, data.non_tensor_batch["traj_id"].tolist())
        data.batch[ADVANTAGES] *= data.batch[ADVANTAGES].new_tensor(factors)[:, None]


def is_copy(data: DataProto) -> Any:
    """Return whether each row is a masked copy, bool (rows,)."""
    return np.char.startswith(data.non_tensor_batch[ROW_NAME].astype(str), COPY)


def use_advantages(data: DataProto, clip: float | None) -> None:
    """Replace ROLL's advantages with ours: 0 where the response mask is 0, and clipped as in ROLL."""
    mask = data.batch["response_mask"][:, 1:]
    advantages = data.batch[ADVANTAGES] * mask
    data.batch["returns"] = data.batch[RETURNS] * mask
    data.batch["raw_advantages"] = advantages
    data.batch["advantages"] = advantages if clip is None else torch.clamp(advantages, -clip, clip)
    for key in (ADVANTAGES, RETURNS):
        del data[key]
